"""Harmonic WER + NLL reward: the wanted words were heard, and the sound makes them likely."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from elocution.config.tree import RewardConfig
from elocution.measures import PhonemeScorer, Transcriber, check_recognisers, load_phoneme_scorer, load_transcriber
from elocution.measures.compare import Comparison, compare, compare_by
from elocution.rewards.base import FLOOR
from elocution.rewards.combine import error_tanh, weighted_harmonic_mean
from elocution.rewards.listening import ListeningReward
from elocution.rewards.pool import ScoringPool
from elocution.text.normalize import normalize
from elocution.types import Audio, Rollout, Score

__all__ = ["Comparing", "Heard", "SaidText", "WerNllReward", "harmonic_reward", "listen", "utilities"]


Comparing = Callable[[str, str, str], Comparison]
"""Called as (wanted, heard, language)."""
SaidText = tuple[Audio, str, str]
"""A clip, what it should say, and in which language (ISO 639-1)."""

_FLOOR_PARTS = {"wer": 0.0, "nll": 0.0}


@dataclass(frozen=True, slots=True)
class Heard:
    """What the recognisers made of one clip. Units: fraction; nats per phoneme.

    `nll` is infinite if the clip is too short to hold the text.
    """

    transcript: str
    wer: float
    nll: float


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

    `parts` are the two utilities. `raw` keeps `wer` and, where it is finite, `nll`; `empty_transcript` is 1 where
    nothing was heard, and then the value is `FLOOR`.
    """

    def __init__(self, config: RewardConfig, pool: ScoringPool[SaidText, Heard] | None = None) -> None:
        check_recognisers(transcriber=config.asr, phoneme_scorer=config.nll)
        self._config = config
        super().__init__(
            pool
            or ScoringPool(
                partial(_build_listener, config.asr, config.nll, partial(compare_by, config.metric, config.normalizer)),
                workers=config.workers,
                timeout_s=config.timeout_s,
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
        if not heard.transcript:
            return Score(value=FLOOR, raw=raw | {"empty_transcript": 1.0}, transcript="", parts=_FLOOR_PARTS)
        config = self._config
        scales = {"alpha_wer": config.alpha_wer, "alpha_nll": config.alpha_nll}
        value = harmonic_reward(
            heard.wer, heard.nll, **scales, lambda_wer=config.lambda_wer, lambda_nll=config.lambda_nll
        )
        parts = dict(zip(("wer", "nll"), utilities(heard.wer, heard.nll, **scales), strict=True))
        return Score(value, raw, heard.transcript, parts=parts)


def _build_listener(asr: str, nll: str, compared: Comparing) -> Callable[[SaidText], Heard]:
    return partial(listen, load_transcriber(asr), load_phoneme_scorer(nll), compared=compared)


def listen(transcriber: Transcriber, scorer: PhonemeScorer, clip: SaidText, *, compared: Comparing = compare) -> Heard:
    """Transcribes a clip and scores its text. An empty transcript is WER 1, whatever the likelihood.

    A word recogniser finds words in noise, hum and music; where the phoneme recogniser hears no speech, nothing was
    said, and the transcript is empty.
    """
    audio, text, language = clip
    likelihood = scorer.score(audio, normalize(text, language))
    edits = compared(text, transcriber.transcribe(audio) if likelihood.is_speech else "", language)
    return Heard(" ".join(edits.hypothesis), edits.counts.rate, likelihood.nll)
