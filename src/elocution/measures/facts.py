"""The facts that can be measured of one clip, with their units, and one listener that measures those that are asked for.

What cannot be measured is absent with its reason; one measure that fails leaves the others standing.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elocution.errors import ConfigError
from elocution.measures import load_phoneme_scorer, load_transcriber
from elocution.measures.compare import Unit, compare
from elocution.measures.prosody import Prosody, measure_prosody, repeated_share
from elocution.text.normalize import normalize
from elocution.types import Audio

__all__ = ["FACTS", "Fact", "Findings", "SpokenText", "build_listener"]


@dataclass(frozen=True, slots=True)
class Fact:
    """What a number means: its unit, and whether more of it is better speech; None where neither way is."""

    unit: str
    higher_is_better: bool | None
    by: str


FACTS: Mapping[str, Fact] = {
    "wer": Fact("word edits per word of the text; characters in zh, ja and ko", False, "recogniser"),
    "cer": Fact("character edits per character of the text", False, "recogniser"),
    "pinyin_error_rate": Fact("syllable edits per syllable, tones left out; zh", False, "recogniser"),
    "toned_pinyin_error_rate": Fact("syllable edits per syllable with its tone; zh", False, "recogniser"),
    "nll": Fact("nats per phoneme of the text", False, "phonemes"),
    "f0_hz": Fact("Hz, median", None, "prosody"),
    "f0_spread": Fact("semitones, standard deviation", None, "prosody"),
    "energy_spread_db": Fact("dB, standard deviation", None, "prosody"),
    "rate": Fact("letters and digits per second", None, "prosody"),
    "pause_share": Fact("share of the clip", None, "prosody"),
    "silence_share": Fact("share of the clip", None, "prosody"),
    "clipped_share": Fact("share of the samples", False, "prosody"),
    "repeated_share": Fact("share of four-code runs", False, "codes"),
    "duration_s": Fact("seconds", None, "clip"),
}


_UNITS = {
    "wer": Unit.NATIVE,
    "cer": Unit.CHARACTER,
    "pinyin_error_rate": Unit.PINYIN,
    "toned_pinyin_error_rate": Unit.TONED_PINYIN,
}


@dataclass(frozen=True, slots=True)
class SpokenText:
    """A clip, what it should say, and the codes that it was made of. Shapes: `codes` [F, Q]."""

    audio: Audio
    text: str
    language: str
    codes: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Findings:
    """The facts that were found, and why others were not. `transcript` is None if no recogniser listened."""

    facts: Mapping[str, float]
    failures: Mapping[str, str] = field(default_factory=dict)
    transcript: str | None = None


def build_listener(wanted: Collection[str], *, asr: str, nll: str) -> Callable[[SpokenText], Findings]:
    """A listener for the facts `wanted`, which loads no more models than they need.

    Raises: ConfigError if there is no such fact.
    """
    if unknown := sorted(set(wanted) - FACTS.keys()):
        raise ConfigError(f"there is no measure {', '.join(unknown)}; known are {', '.join(FACTS)}")
    sources = {FACTS[name].by for name in wanted}
    transcriber = load_transcriber(asr) if "recogniser" in sources else None
    scorer = load_phoneme_scorer(nll) if "phonemes" in sources else None

    wanted_rates = [name for name in _UNITS if name in wanted]

    def listen(clip: SpokenText) -> Findings:
        text = normalize(clip.text, clip.language)
        facts: dict[str, float | None] = {"duration_s": clip.audio.duration_s}
        if "codes" in sources:
            facts["repeated_share"] = repeated_share(clip.codes)
        failures: dict[str, str] = {}
        transcript: str | None = None
        if transcriber is not None:
            transcript = _attempt(lambda: transcriber.transcribe(clip.audio).strip(), "recogniser", failures)
        if scorer is not None:
            likelihood = _attempt(lambda: scorer.score(clip.audio, text), "nll", failures)
            if likelihood is not None:
                facts["nll"] = likelihood.nll if np.isfinite(likelihood.nll) else None
                if facts["nll"] is None:
                    failures["phonemes"] = "the clip is too short to hold the text"
                # A word recogniser finds words in noise; where no phoneme was heard, nothing was said.
                if transcript is not None and not likelihood.is_speech:
                    transcript = ""
        if transcript is not None:
            for name in wanted_rates:
                facts[name] = compare(clip.text, transcript, clip.language, unit=_UNITS[name]).counts.rate
        if "prosody" in sources:
            prosody: Prosody | None = _attempt(lambda: measure_prosody(clip.audio, text), "prosody", failures)
            for name in Prosody.__dataclass_fields__:
                facts[name] = None if prosody is None else getattr(prosody, name)
        return Findings(
            {name: value for name in wanted if (value := facts.get(name)) is not None},
            {
                name: failures.get(name) or failures.get(FACTS[name].by, "the clip has nothing to take it from")
                for name in wanted
                if facts.get(name) is None
            },
            transcript,
        )

    return listen


def _attempt(measure: Callable[[], Any], name: str, failures: dict[str, str]) -> Any:
    """What `measure` finds; None if it fails, with the reason under `name`."""
    try:
        return measure()
    except Exception as error:  # a measure may be the user's own; its failure is this fact's, and is reported
        failures[name] = f"{type(error).__name__}: {error}"
        return None
