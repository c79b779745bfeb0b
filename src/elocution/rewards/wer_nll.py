"""Harmonic WER + NLL reward: the wanted words were heard, and the sound makes them likely."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Self

from elocution.config.tree import RewardConfig
from elocution.measures import PhonemeScorer, Transcriber, check_recognisers, load_phoneme_scorer, load_transcriber
from elocution.measures.compare import compare
from elocution.rewards.base import FLOOR, Derived, Known, Pending
from elocution.rewards.pool import ScoringPool
from elocution.text.normalize import normalize
from elocution.types import Audio, Outcome, Rollout, Score

__all__ = ["Heard", "WerNllReward", "harmonic_reward", "listen", "utilities"]


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
    return 1.0 - math.tanh(alpha_wer * wer), math.exp(-nll / alpha_nll)


def harmonic_reward(
    wer: float, nll: float, *, alpha_wer: float, alpha_nll: float, lambda_wer: float, lambda_nll: float
) -> float:
    """Weighted harmonic mean of the two `utilities`, in [0, 1]; higher is better.

    Source: Llasa-GRPO `reward_whisper.py`; arXiv:2509.18798.
    """
    utility_wer, utility_nll = (max(u, 1e-8) for u in utilities(wer, nll, alpha_wer=alpha_wer, alpha_nll=alpha_nll))
    harmonic = (lambda_wer + lambda_nll) / (lambda_wer / utility_wer + lambda_nll / utility_nll)
    return min(1.0, max(0.0, harmonic))


class WerNllReward:
    """`harmonic_reward` of a transcript's WER and the wanted text's likelihood, in [0, 1]; higher is better.

    `parts` are the two utilities. `raw` keeps `wer` and, where it is finite, `nll`; `empty_transcript` is 1 where
    nothing was heard, and then the value is `FLOOR`.
    """

    def __init__(self, config: RewardConfig, pool: ScoringPool[tuple[Audio, str], Heard] | None = None) -> None:
        check_recognisers(transcriber=config.asr, phoneme_scorer=config.nll)
        self._config = config
        self._pool = pool or ScoringPool(
            partial(_build_listener, config.asr, config.nll), workers=config.workers, timeout_s=config.timeout_s
        )

    def __enter__(self) -> Self:
        self._pool.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.__exit__(kind, error, trace)

    def __call__(self, rollouts: Sequence[Rollout]) -> list[Score]:
        clips = {index: clip for index, rollout in enumerate(rollouts) if (clip := _clip(rollout)) is not None}
        heard = self._listen(clips)
        return [
            self._score(heard[index]) if index in heard else _floor(rollout.outcome)
            for index, rollout in enumerate(rollouts)
        ]

    def start(self, rollout: Rollout) -> Pending[Score]:
        clip = _clip(rollout)
        if clip is None:
            return Known(_floor(rollout.outcome))
        return Derived(self._pool.submit(clip), self._score)

    def _listen(self, clips: dict[int, tuple[Audio, str]]) -> dict[int, Heard | Exception]:
        """What was heard in each clip. Clips that share one audio object and text are listened to once.

        The longest come first, so that the workers finish together.
        """
        distinct = {(id(audio), text): (audio, text) for audio, text in clips.values()}
        order = sorted(distinct.values(), key=lambda clip: clip[0].duration_s, reverse=True)
        heard = self._pool.map(order)
        by_clip = {(id(audio), text): one for (audio, text), one in zip(order, heard, strict=True)}
        return {index: by_clip[id(audio), text] for index, (audio, text) in clips.items()}

    def _score(self, heard: Heard | Exception) -> Score:
        if isinstance(heard, Exception):
            return Score(value=None, error=f"{type(heard).__name__}: {heard}")
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


def _clip(rollout: Rollout) -> tuple[Audio, str] | None:
    """What is to be listened to, and its text; None if the rollout holds no speech."""
    if rollout.outcome is not Outcome.SPEECH or rollout.audio is None:
        return None
    return rollout.audio, rollout.utterance.text


def _floor(outcome: Outcome) -> Score:
    """A completion without speech: every word deleted, nothing heard."""
    if outcome is Outcome.SPEECH:
        return Score(value=None, error="the completion is marked as speech but has no audio")
    return Score(value=FLOOR, raw={"wer": 1.0, "empty_transcript": 1.0}, transcript="", parts=_FLOOR_PARTS)


def _build_listener(asr: str, nll: str) -> Callable[[tuple[Audio, str]], Heard]:
    return partial(listen, load_transcriber(asr), load_phoneme_scorer(nll))


def listen(transcriber: Transcriber, scorer: PhonemeScorer, clip: tuple[Audio, str]) -> Heard:
    """Transcribes a clip and scores its text. An empty transcript is WER 1, whatever the likelihood.

    A word recogniser finds words in noise, hum and music; where the phoneme recogniser hears no speech, nothing was
    said, and the transcript is empty.
    """
    audio, text = clip
    likelihood = scorer.score(audio, normalize(text, "en"))
    compared = compare(text, transcriber.transcribe(audio) if likelihood.is_speech else "", "en")
    return Heard(" ".join(compared.hypothesis), compared.counts.rate, likelihood.nll)
