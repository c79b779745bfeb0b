"""The recognisers of a config behind a gate: what was heard in each clip, and which clips were not worth listening to."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from elocution.config.rewards import RewardConfig
from elocution.measures import load_phoneme_scorer, load_transcriber
from elocution.measures.base import HearsAndScores, Likelihood, PhonemeScorer, Transcriber
from elocution.measures.facts import SpokenText
from elocution.measures.loudness import is_silent
from elocution.measures.routing import Routes, score_together, transcribe_together
from elocution.types import Audio

__all__ = ["Hear", "HeardClip", "build_hearing", "describe", "each", "hear_speech"]

Found = TypeVar("Found")

_SOURCES = ("recogniser", "phonemes")
_NOTHING = Likelihood(nll=math.inf, num_wanted=1, num_heard=0)


@dataclass(frozen=True, slots=True)
class HeardClip:
    """Transcript and likelihood of a clip; None where one was not asked for, or failed.

    `failures` says why one is missing, by `recogniser` and `phonemes`. Of a clip that `is_gated` no recogniser heard anything,
    because it holds no speech: its transcript is empty.
    """

    transcript: str | None
    likelihood: Likelihood | None
    failures: Mapping[str, str] = field(default_factory=dict)
    is_gated: bool = False


Hear = Callable[[Sequence[SpokenText]], list[HeardClip]]
"""What is heard in each clip; the others do not change it."""

_SILENT = HeardClip("", _NOTHING, is_gated=True)


def hear_speech(hear: Hear, clips: Sequence[SpokenText], speech_shares: Sequence[float | None]) -> list[HeardClip]:
    """What `hear` makes of the clips that may hold speech; the others cost it nothing.

    The gate is closed to a clip whose level stays below `SILENCE_DB`, or in which a detector found no speech: its entry of
    `speech_shares` is 0, and None where none was asked.
    """
    found: dict[int, HeardClip] = {}
    for index, (clip, share) in enumerate(zip(clips, speech_shares, strict=True)):
        try:
            if share == 0 or is_silent(clip.audio):
                found[index] = _SILENT
        except ValueError as error:
            found[index] = HeardClip(None, None, dict.fromkeys(_SOURCES, describe(error)))
    asked = [index for index in range(len(clips)) if index not in found]
    if asked:
        found |= dict(zip(asked, hear([clips[index] for index in asked]), strict=True))
    return [found[index] for index in range(len(clips))]


def build_hearing(config: RewardConfig, *, words: bool, likelihood: bool, device: str = "cpu") -> Hear:
    """The recognisers of the config, on `device`, of which one that transcribes and scores hears each clip once.

    Where both are asked and are two, the words of a clip in which no phoneme was heard are not looked for.

    Raises: ConfigError if there is no such class, or it cannot be built.
    """
    scorer = load_phoneme_scorer(config.nll, path=config.nll_path, device=device) if likelihood else None
    is_same = (config.asr, config.asr_path) == (config.nll, config.nll_path) and not config.asr_by_language
    if words and is_same and isinstance(scorer, HearsAndScores):
        return _in_one_pass(scorer)
    transcriber = load_transcriber(config.asr, path=config.asr_path, device=device) if words else None
    if transcriber is not None and config.asr_by_language:
        transcriber = Routes(transcriber, config.asr_by_language, device=device)
    return _one_after_the_other(scorer, transcriber)


def _in_one_pass(both: HearsAndScores) -> Hear:
    def hear(clips: Sequence[SpokenText]) -> list[HeardClip]:
        return [
            HeardClip(None, None, dict.fromkeys(_SOURCES, describe(one)))
            if isinstance(one, Exception)
            else HeardClip(*one)
            for one in each(lambda some: both.hear_all(*_columns(some)), clips)
        ]

    return hear


def _one_after_the_other(scorer: PhonemeScorer | None, transcriber: Transcriber | None) -> Hear:
    def hear(clips: Sequence[SpokenText]) -> list[HeardClip]:
        likelihoods: Sequence[Likelihood | Exception | None] = [None] * len(clips)
        if scorer is not None:
            likelihoods = each(lambda some: score_together(scorer, *_columns(some)), clips)
        transcripts: list[str | Exception | None] = [None] * len(clips)
        if transcriber is not None:
            spoken = [i for i, one in enumerate(likelihoods) if not isinstance(one, Likelihood) or one.is_speech]
            words = each(
                lambda some: transcribe_together(transcriber, _columns(some)[0], _columns(some)[2]),
                [clips[index] for index in spoken],
            )
            said = dict(zip(spoken, words, strict=True))
            transcripts = [said.get(index, "") for index in range(len(clips))]
        return [_heard(text, likely) for text, likely in zip(transcripts, likelihoods, strict=True)]

    return hear


def _heard(transcript: str | Exception | None, likelihood: Likelihood | Exception | None) -> HeardClip:
    failures = {
        source: describe(one)
        for source, one in zip(_SOURCES, (transcript, likelihood), strict=True)
        if isinstance(one, Exception)
    }
    return HeardClip(
        None if isinstance(transcript, Exception) else transcript,
        None if isinstance(likelihood, Exception) else likelihood,
        failures,
    )


def _columns(clips: Sequence[SpokenText]) -> tuple[list[Audio], list[str], list[str]]:
    return [clip.audio for clip in clips], [clip.text for clip in clips], [clip.language for clip in clips]


def each(
    measure: Callable[[Sequence[SpokenText]], Sequence[Found]], clips: Sequence[SpokenText]
) -> list[Found | Exception]:
    """What `measure` finds in each clip. Where it fails on all together each is tried alone, so that one spoils no other."""
    if not clips:
        return []
    try:
        return list(measure(clips))
    except Exception as error:  # a measure may be the user's own; its failure is this fact's, and is reported
        if len(clips) == 1:
            return [error]
    return [one for clip in clips for one in each(measure, [clip])]


def describe(error: Exception) -> str:
    """Kind and message of what failed, as a reason."""
    return f"{type(error).__name__}: {error}"
