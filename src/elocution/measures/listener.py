"""One listener that measures the facts that are asked for, and loads no more models than they need.

What cannot be measured is absent with its reason; one measure that fails leaves the others standing.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeVar

import numpy as np

from elocution.config.rewards import RewardConfig
from elocution.errors import ConfigError
from elocution.measures import load_phoneme_scorer, load_transcriber
from elocution.measures.base import HearsAndScores, Likelihood
from elocution.measures.compare import Unit, compare
from elocution.measures.facts import FACTS, Findings, SpokenText
from elocution.measures.hallucination import is_hallucination
from elocution.measures.routing import Routes, score_together, transcribe_together
from elocution.measures.sources import Measure, build_source
from elocution.types import Audio

__all__ = ["Hearing", "Listener", "build_hearing", "build_listener"]

Found = TypeVar("Found")
Heard = tuple[str | None, Likelihood | None]
Hearing = Callable[[Sequence[SpokenText]], list[tuple[Heard, Mapping[str, str]]]]
"""Transcript and likelihood of each clip, and why one is missing that was asked for, by `recogniser` and `phonemes`."""

_UNITS = {
    "wer": Unit.NATIVE,
    "cer": Unit.CHARACTER,
    "pinyin_error_rate": Unit.PINYIN,
    "toned_pinyin_error_rate": Unit.TONED_PINYIN,
}


def build_listener(wanted: Collection[str], config: RewardConfig) -> "Listener":
    """A listener for the facts `wanted`, and for speech if the config requires it.

    Raises: ConfigError if there is no such fact, or a path is missing; MissingDependency if a package is absent.
    """
    if unknown := sorted(set(wanted) - FACTS.keys()):
        raise ConfigError(f"there is no measure {', '.join(unknown)}; known are {', '.join(FACTS)}")
    by = {FACTS[name].by for name in wanted} | ({"voice"} if config.require_speech else set())
    hear = build_hearing(config, words="recogniser" in by, likelihood="phonemes" in by)
    rest = sorted(by - {"recogniser", "phonemes"})
    return Listener(tuple(wanted), hear, {name: build_source(name, config) for name in rest})


def build_hearing(config: RewardConfig, *, words: bool, likelihood: bool) -> Hearing:
    """The recognisers of the config, of which one that transcribes and scores hears each clip once.

    Raises: ConfigError if there is no such class, or it cannot be built.
    """
    scorer = load_phoneme_scorer(config.nll, path=config.nll_path, device=config.device) if likelihood else None
    is_same = (config.asr, config.asr_path) == (config.nll, config.nll_path) and not config.asr_by_language
    if words and is_same and isinstance(scorer, HearsAndScores):
        both = scorer

        def hear_both(clips: Sequence[SpokenText]) -> list[tuple[Heard, Mapping[str, str]]]:
            found = _each(lambda some: both.hear_all(*_columns(some)), clips)
            return [
                ((None, None), dict.fromkeys(("recogniser", "phonemes"), _reason(one)))
                if isinstance(one, Exception)
                else (one, {})
                for one in found
            ]

        return hear_both
    transcriber = load_transcriber(config.asr, path=config.asr_path, device=config.device) if words else None
    if transcriber is not None and config.asr_by_language:
        transcriber = Routes(transcriber, config.asr_by_language, device=config.device)

    def hear(clips: Sequence[SpokenText]) -> list[tuple[Heard, Mapping[str, str]]]:
        transcripts: Sequence[str | Exception | None] = [None] * len(clips)
        likelihoods: Sequence[Likelihood | Exception | None] = [None] * len(clips)
        if transcriber is not None:
            transcripts = _each(
                lambda some: transcribe_together(transcriber, _columns(some)[0], _columns(some)[2]), clips
            )
        if scorer is not None:
            likelihoods = _each(lambda some: score_together(scorer, *_columns(some)), clips)
        rows: list[tuple[Heard, Mapping[str, str]]] = []
        for text, likely in zip(transcripts, likelihoods, strict=True):
            failures = {
                name: _reason(one)
                for name, one in (("recogniser", text), ("phonemes", likely))
                if isinstance(one, Exception)
            }
            heard = None if isinstance(text, Exception) else text, None if isinstance(likely, Exception) else likely
            rows.append((heard, failures))
        return rows

    return hear


class Listener:
    """Measures clips, together or one by one."""

    def __init__(self, wanted: tuple[str, ...], hear: Hearing, measures: Mapping[str, Measure]) -> None:
        self._wanted, self._hear, self._measures = wanted, hear, measures

    def __call__(self, clip: SpokenText) -> Findings:
        """The findings of one clip."""
        return self.together([clip])[0]

    def together(self, clips: Sequence[SpokenText]) -> list[Findings]:
        """The findings of each clip; a clip on which a measure fails keeps none from the others."""
        measured: list[dict[str, float | None]] = [{} for _ in clips]
        failed: list[dict[str, str]] = [{} for _ in clips]
        for name, measure in self._measures.items():
            for row, one in enumerate(_each(measure, clips)):
                if isinstance(one, Exception):
                    failed[row][name] = _reason(one)
                else:
                    measured[row] |= one
        heard = self._hear(clips)
        return [
            self._findings(clip, facts, {**failures, **hearing_failures}, hearing)
            for clip, facts, failures, (hearing, hearing_failures) in zip(clips, measured, failed, heard, strict=True)
        ]

    def _findings(
        self, clip: SpokenText, facts: dict[str, float | None], failures: dict[str, str], heard: Heard
    ) -> Findings:
        transcript, likelihood = heard
        if transcript is not None:
            transcript = transcript.strip()
            facts["hallucination"] = float(is_hallucination(transcript, clip.text, clip.language))
        if likelihood is not None:
            facts["nll"] = likelihood.nll if np.isfinite(likelihood.nll) else None
            if facts["nll"] is None:
                failures["phonemes"] = "the clip is too short, or too long, to hold the text"
            # A word recogniser finds words in noise; where no phoneme was heard, nothing was said.
            if transcript is not None and not likelihood.is_speech:
                transcript = ""
        if facts.get("speech_share") == 0:
            transcript = ""
        if transcript is not None and "recogniser" not in failures:
            for name in self._wanted:
                if name in _UNITS:
                    facts[name] = compare(clip.text, transcript, clip.language, unit=_UNITS[name]).counts.rate
        return Findings(
            {name: value for name in self._wanted if (value := facts.get(name)) is not None},
            {
                name: failures.get(FACTS[name].by, "the clip, or its prompt, has nothing to take it from")
                for name in self._wanted
                if facts.get(name) is None
            },
            transcript,
        )


def _columns(clips: Sequence[SpokenText]) -> tuple[list[Audio], list[str], list[str]]:
    return [clip.audio for clip in clips], [clip.text for clip in clips], [clip.language for clip in clips]


def _each(
    measure: Callable[[Sequence[SpokenText]], Sequence[Found]], clips: Sequence[SpokenText]
) -> list[Found | Exception]:
    """What `measure` finds in each clip. Where it fails on all together each is tried alone, so that one spoils no other."""
    try:
        return list(measure(clips))
    except Exception as error:  # a measure may be the user's own; its failure is this fact's, and is reported
        if len(clips) == 1:
            return [error]
    return [one for clip in clips for one in _each(measure, [clip])]


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
