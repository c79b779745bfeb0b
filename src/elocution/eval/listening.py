"""What a scoring process does with a clip of an evaluation: the judge hears it, and its facts are measured."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from elocution.audio import read_audio
from elocution.config.rewards import RewardConfig
from elocution.config.tree import EvalConfig
from elocution.errors import ConfigError
from elocution.measures import check_recognisers, load_transcriber, transcriber_languages
from elocution.measures.facts import SpokenText
from elocution.measures.listener import build_listener
from elocution.measures.loudness import is_silent
from elocution.registry import build_part, import_part
from elocution.types import Audio

__all__ = ["EvalClip", "Heard", "QualityRater", "SpeakerEncoder", "check_judge", "listener_factory"]

_FACTS = (
    *("rate", "f0_hz", "f0_spread", "energy_spread_db", "pause_share", "silence_share", "clipped_share", "duration_s"),
)


class SpeakerEncoder(Protocol):
    """Voices as vectors; clips of one speaker have a high cosine."""

    def embed(self, clips: Sequence[Audio]) -> NDArray[np.float32]:
        """Shapes: [N, D]; each row depends on its clip alone."""


class QualityRater(Protocol):
    """Predicts what listeners would say of a clip."""

    def rate(self, audio: Audio) -> float:
        """A mean opinion score, 1 to 5."""


@dataclass(frozen=True)
class EvalClip:
    """A clip and what it should be. Shapes: `codes` [F, Q], empty for a recording."""

    audio: Audio
    text: str
    language: str
    codes: NDArray[np.int64]
    reference: Path | None


@dataclass(frozen=True)
class Heard:
    """What the judge heard, the facts, and why others are absent."""

    transcript: str
    facts: Mapping[str, float]
    failures: Mapping[str, str] = field(default_factory=dict)


def check_judge(config: EvalConfig, languages: Sequence[str]) -> None:
    """Finds what would fail in every clip, before any work.

    Raises: ConfigError if a class is missing, or the judge does not hear one of `languages`.
    """
    check_recognisers(transcriber=config.judge)
    heard = transcriber_languages(config.judge)
    if heard is not None and (deaf := sorted(set(languages) - heard)):
        raise ConfigError(
            f"eval.judge = {config.judge!r} hears {', '.join(sorted(heard))}, but the set has texts in {', '.join(deaf)}; "
            "name another recogniser"
        )
    if config.speaker:
        import_part("speaker encoder", config.speaker, {}, methods=["embed"])
    if config.quality:
        import_part("quality model", config.quality, {}, methods=["rate"])


def listener_factory(config: EvalConfig) -> Callable[[], Callable[[EvalClip], Heard]]:
    """A picklable factory of what hears and measures a clip; its models are loaded when it is called."""
    return partial(_Listener, config)


class _Listener:
    def __init__(self, config: EvalConfig) -> None:
        self._transcriber = load_transcriber(config.judge)
        self._measure = build_listener((*_FACTS, "repeated_share"), RewardConfig())
        self._speaker: SpeakerEncoder | None = (
            build_part(
                "speaker encoder", config.speaker, import_part("speaker encoder", config.speaker, {}, methods=["embed"])
            )
            if config.speaker
            else None
        )
        self._quality: QualityRater | None = (
            build_part(
                "quality model", config.quality, import_part("quality model", config.quality, {}, methods=["rate"])
            )
            if config.quality
            else None
        )
        self._references: dict[Path, NDArray[np.float32]] = {}

    def __call__(self, clip: EvalClip) -> Heard:
        transcript = "" if is_silent(clip.audio) else self._transcriber.transcribe(clip.audio).strip()
        found = self._measure(SpokenText(clip.audio, clip.text, clip.language, clip.codes))
        facts, failures = dict(found.facts), dict(found.failures)
        if not len(clip.codes):  # a recording
            facts.pop("repeated_share", None)
        if self._speaker is not None:
            if clip.reference is None:
                failures["speaker_similarity"] = "the item has no prompt recording"
            else:
                self._try("speaker_similarity", partial(self._likeness, clip.audio, clip.reference), facts, failures)
        if self._quality is not None:
            self._try("quality", partial(self._quality.rate, clip.audio), facts, failures)
        return Heard(transcript, facts, failures)

    def _likeness(self, audio: Audio, reference: Path) -> float:
        assert self._speaker is not None
        if reference not in self._references:
            self._references[reference] = self._speaker.embed([read_audio(reference)])[0]
        wanted, found = self._references[reference], self._speaker.embed([audio])[0]
        return float(wanted @ found / (np.linalg.norm(wanted) * np.linalg.norm(found)))

    def _try(self, name: str, measure: Callable[[], Any], facts: dict[str, float], failures: dict[str, str]) -> None:
        try:
            value = float(measure())
        except Exception as error:  # a measure may be the user's own; its failure is this fact's, and is reported
            failures[name] = f"{type(error).__name__}: {error}"
            return
        if np.isfinite(value):
            facts[name] = value
        else:
            failures[name] = f"not a finite number: {value}"
