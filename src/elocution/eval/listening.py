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
from elocution.measures import (
    SPEAKER_ENCODERS,
    SpeakerEncoder,
    check_recognisers,
    load_speaker_encoder,
    load_transcriber,
    transcriber_languages,
)
from elocution.measures.facts import SpokenText
from elocution.measures.listener import build_listener
from elocution.measures.loudness import is_silent
from elocution.measures.routing import transcribe_together
from elocution.measures.speakers import cosine_similarity
from elocution.registry import build_part, import_part
from elocution.types import Audio

__all__ = ["QUALITY_MODELS", "EvalClip", "Heard", "QualityRater", "check_judge", "listener_factory"]

QUALITY_MODELS = {
    "distillmos": "elocution.measures.quality:DistillMos",
    "dnsmos": "elocution.measures.quality:Dnsmos",
}
_FACTS = (
    *("rate", "f0_hz", "f0_spread", "energy_spread_db", "pause_share", "silence_share", "clipped_share", "duration_s"),
)


class QualityRater(Protocol):
    """Predicts what listeners would say of a clip."""

    def rate(self, audio: Audio) -> float | Mapping[str, float]:
        """A mean opinion score, 1 to 5, or several by the names of facts."""


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
        import_part("speaker encoder", config.speaker, SPEAKER_ENCODERS, methods=["embed"])
    if config.quality:
        _quality_class(config.quality)


def listener_factory(config: EvalConfig, *, device: str) -> Callable[[], "_Listener"]:
    """A picklable factory of what hears and measures clips, one or several; models are loaded when it is called.

    Models that have a path run on `device`.
    """
    return partial(_Listener, config, device)


def _quality_class(name: str) -> Any:
    return import_part("quality model", name, QUALITY_MODELS, methods=["rate"])


class _Listener:
    def __init__(self, config: EvalConfig, device: str) -> None:
        self._transcriber = load_transcriber(config.judge, path=config.judge_path, device=device)
        self._measure = build_listener((*_FACTS, "repeated_share"), RewardConfig())
        self._speaker: SpeakerEncoder | None = None
        self._quality: QualityRater | None = None
        if config.speaker:
            self._speaker = load_speaker_encoder(config.speaker, path=config.speaker_path, device=device)
        if config.quality:
            self._quality = build_part("quality model", config.quality, _quality_class(config.quality))
        self._references: dict[Path, NDArray[np.float32]] = {}

    def __call__(self, clip: EvalClip) -> Heard:
        return self.together([clip])[0]

    def together(self, clips: Sequence[EvalClip]) -> list[Heard]:
        """What is heard of each clip; the others do not change it."""
        audible = [index for index, clip in enumerate(clips) if not is_silent(clip.audio)]
        heard = transcribe_together(
            self._transcriber, [clips[i].audio for i in audible], [clips[i].language for i in audible]
        )
        transcripts = dict(zip(audible, heard, strict=True))
        return [self._heard(clip, transcripts.get(index, "").strip()) for index, clip in enumerate(clips)]

    def _heard(self, clip: EvalClip, transcript: str) -> Heard:
        found = self._measure(SpokenText(clip.audio, clip.text, clip.language, clip.codes))
        facts, failures = dict(found.facts), dict(found.failures)
        if not len(clip.codes):  # a recording
            facts.pop("repeated_share", None)
        if self._speaker is not None:
            if clip.reference is None:
                failures["speaker_similarity"] = "the item has no prompt recording"
            else:
                _try("speaker_similarity", partial(self._likeness, clip.audio, clip.reference), facts, failures)
        if self._quality is not None:
            _try("quality", partial(self._quality.rate, clip.audio), facts, failures)
        return Heard(transcript, facts, failures)

    def _likeness(self, audio: Audio, reference: Path) -> float:
        assert self._speaker is not None
        if reference not in self._references:
            self._references[reference] = self._speaker.embed([read_audio(reference)])
        return float(cosine_similarity(self._references[reference], self._speaker.embed([audio]))[0])


def _try(
    name: str,
    measure: Callable[[], float | Mapping[str, float]],
    facts: dict[str, float],
    failures: dict[str, str],
) -> None:
    """Adds what `measure` finds, a number under `name` or several under their own, or why it does not."""
    try:
        found = measure()
    except Exception as error:  # a measure may be the user's own; its failure is this fact's, and is reported
        failures[name] = f"{type(error).__name__}: {error}"
        return
    for own, value in (found if isinstance(found, Mapping) else {name: found}).items():
        if np.isfinite(value):
            facts[own] = float(value)
        else:
            failures[own] = f"not a finite number: {value}"
