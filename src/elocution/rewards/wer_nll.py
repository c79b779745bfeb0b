"""Harmonic WER + NLL reward: the wanted words were heard, and the sound makes them likely."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from elocution.config.tree import RewardConfig
from elocution.errors import RewardError
from elocution.measures import Likelihood, check_recognisers
from elocution.measures.compare import Comparison, compare, compare_by
from elocution.measures.error_rates import EditCounts, edits_to_row
from elocution.measures.facts import SpokenText
from elocution.measures.hearing import build_hearing, hear_speech
from elocution.measures.sources import build_source
from elocution.rewards.base import FLOOR
from elocution.rewards.combine import error_tanh, weighted_harmonic_mean
from elocution.rewards.listening import ListeningReward
from elocution.rewards.pool import ScoringPool
from elocution.types import Audio, Rollout, Score

__all__ = ["Comparing", "Heard", "SaidText", "WerNllReward", "WordListener", "harmonic_reward", "judge", "utilities"]


Comparing = Callable[[str, str, str], Comparison]
"""Called as (wanted, heard, language)."""
SaidText = tuple[Audio, str, str]
"""A clip, what it should say, and in which language (ISO 639-1)."""

_NO_CODES = np.zeros((0, 1), np.int64)
_FLOOR_PARTS = {"wer": 0.0, "nll": 0.0}


@dataclass(frozen=True, slots=True)
class Heard:
    """What the recognisers made of one clip. Units: fraction; nats per phoneme.

    `nll` is infinite if the clip is too short to hold the text. `edits` are behind the WER. `is_gated`: no recogniser
    listened, because the clip holds no speech.
    """

    transcript: str
    wer: float
    nll: float
    edits: EditCounts | None = None
    is_gated: bool = False


def utilities(wer: float, nll: float, *, alpha_wer: float, alpha_nll: float) -> tuple[float, float]:
    """`1 - tanh(alpha_wer * wer)` and `exp(-nll / alpha_nll)`, in [0, 1]; higher is better.

    Source: Llasa-GRPO `reward_whisper.py`; arXiv:2509.18798.
    """
    return error_tanh(wer, alpha=alpha_wer), math.exp(-nll / alpha_nll)


def harmonic_reward(
    wer: float, nll: float, *, alpha_wer: float, alpha_nll: float, lambda_wer: float, lambda_nll: float
) -> float:
    """Weighted harmonic mean of the two `utilities`, in [0, 1]; higher is better.

    Source: Llasa-GRPO `reward_whisper.py`; arXiv:2509.18798.
    """
    found = dict(zip(("wer", "nll"), utilities(wer, nll, alpha_wer=alpha_wer, alpha_nll=alpha_nll), strict=True))
    return weighted_harmonic_mean(found, {"wer": lambda_wer, "nll": lambda_nll})


class WerNllReward(ListeningReward[SaidText, Heard]):
    """`harmonic_reward` of a transcript's WER and the wanted text's likelihood, in [0, 1]; higher is better.

    `parts` are the two utilities. `raw` keeps `wer`, its edits by kind as `wer/substitutions`, and, where it is finite,
    `nll`; `empty_transcript` is 1 where nothing was heard, and then the value is `FLOOR`; `gated` where nothing listened.
    """

    def __init__(self, config: RewardConfig, pool: ScoringPool[SaidText, Heard] | None = None) -> None:
        check_recognisers(transcriber=config.asr, phoneme_scorer=config.nll)
        for recogniser in config.asr_by_language.values():
            check_recognisers(transcriber=recogniser.name)
        self._config = config
        super().__init__(
            pool
            or ScoringPool(
                *[partial(WordListener, config, device) for device in config.devices],
                workers=config.num_workers,
                timeout_s=config.timeout_s,
                batch_size=config.batch_size,
            )
        )

    def _task(self, rollout: Rollout, audio: Audio) -> SaidText:
        return audio, rollout.utterance.text, rollout.utterance.language

    def _floor(self) -> Score:
        """Every word deleted, nothing heard."""
        return Score(value=FLOOR, raw={"wer": 1.0, "empty_transcript": 1.0}, transcript="", parts=_FLOOR_PARTS)

    def _score(self, heard: Heard) -> Score:
        if math.isnan(heard.wer) or math.isnan(heard.nll):
            return Score(value=None, error=f"a recogniser answered NaN: WER {heard.wer}, NLL {heard.nll}")
        raw = {"wer": heard.wer} | ({"nll": heard.nll} if math.isfinite(heard.nll) else {})
        if heard.edits is not None:
            raw |= edits_to_row({"wer": heard.edits})
        if heard.is_gated:
            raw["gated"] = 1.0
        if not heard.transcript:
            return Score(value=FLOOR, raw=raw | {"empty_transcript": 1.0}, transcript="", parts=_FLOOR_PARTS)
        config = self._config
        scales = {"alpha_wer": config.alpha_wer, "alpha_nll": config.alpha_nll}
        value = harmonic_reward(
            heard.wer, heard.nll, **scales, lambda_wer=config.lambda_wer, lambda_nll=config.lambda_nll
        )
        parts = dict(zip(("wer", "nll"), utilities(heard.wer, heard.nll, **scales), strict=True))
        return Score(value, raw, heard.transcript, parts=parts)


class WordListener:
    """Hears clips one by one or together; models that have a path are on `device`."""

    def __init__(self, config: RewardConfig, device: str = "cpu") -> None:
        self._hear = build_hearing(config, words=True, likelihood=True, device=device)
        self._compared = partial(compare_by, config.metric, config.normalizer, polyphones=config.polyphones)
        self._voice = build_source("voice", config, device) if config.require_speech else None

    def __call__(self, clip: SaidText) -> Heard:
        return _raise_or_give(self._heard([clip])[0])

    def together(self, clips: Sequence[SaidText]) -> list[Heard]:
        """Raises: RewardError if one of them fails; each is then tried alone."""
        return [_raise_or_give(one) for one in self._heard(clips)]

    def _heard(self, clips: Sequence[SaidText]) -> list[Heard | RewardError]:
        asked = [SpokenText(audio, text, language, _NO_CODES) for audio, text, language in clips]
        voices = self._voice(asked) if self._voice else [{}] * len(clips)
        results: list[Heard | RewardError] = []
        found = hear_speech(self._hear, asked, [voice.get("speech_share") for voice in voices])
        for (_, text, language), heard in zip(clips, found, strict=True):
            if heard.transcript is None or heard.likelihood is None:
                results.append(RewardError("; ".join(heard.failures.values())))
            else:
                judged = judge(text, language, heard.transcript, heard.likelihood, compared=self._compared)
                results.append(replace(judged, is_gated=heard.is_gated))
        return results


def _raise_or_give(found: Heard | RewardError) -> Heard:
    if isinstance(found, RewardError):
        raise found
    return found


def judge(text: str, language: str, transcript: str, likelihood: Likelihood, *, compared: Comparing = compare) -> Heard:
    """What the recognisers' answers say of a clip. An empty transcript is WER 1, whatever the likelihood.

    A word recogniser finds words in noise, hum and music; where the other recogniser hears no speech, nothing was said, and
    the transcript is empty.
    """
    edits = compared(text, transcript if likelihood.is_speech else "", language)
    return Heard(" ".join(edits.hypothesis), edits.counts.rate, likelihood.nll, edits.counts)
