"""The facts that can be measured of one clip, with their units, and what a listener is given and finds."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from elocution.measures.error_rates import EditCounts, edits_to_row
from elocution.types import Audio, Voice

__all__ = ["FACTS", "Fact", "Findings", "SpokenText"]


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
    "hallucination": Fact(
        "1 if the transcript is a stock phrase or a loop that the text is not, else 0", False, "recogniser"
    ),
    "phoneme_error_rate": Fact("phoneme edits per phoneme of the text", False, "phonemes"),
    "nll": Fact("nats per phoneme or token of the text, as its recogniser counts", False, "phonemes"),
    "no_speech_probability": Fact("probability by Whisper that nobody speaks, 0 to 1", False, "phonemes"),
    "speaker_similarity": Fact("cosine with the reference clip, -1 to 1", True, "speaker"),
    "clap_similarity": Fact("cosine with the description, -1 to 1", True, "clap"),
    "clap_quality": Fact("cosine with `reward.clap_quality_text`, -1 to 1", True, "clap"),
    "distillmos": Fact("predicted mean opinion score, 1 to 5", True, "distillmos"),
    "dnsmos": Fact("predicted mean opinion score, overall, 1 to 5", True, "dnsmos"),
    "dnsmos_p808": Fact("predicted mean opinion score after P.808, 1 to 5", True, "dnsmos"),
    "utmos": Fact("predicted mean opinion score, 1 to 5", True, "utmos"),
    "emotion_probability": Fact("probability of the prompt's emotion, 0 to 1", True, "emotion"),
    "speech_share": Fact("share of the clip in which somebody speaks", None, "voice"),
    "speech_pause_share": Fact("share of the clip between two stretches of speech", None, "voice"),
    "f0_hz": Fact("Hz, median", None, "prosody"),
    "f0_mean_hz": Fact("Hz, mean", None, "prosody"),
    "f0_spread": Fact("semitones, standard deviation", None, "prosody"),
    "energy_spread_db": Fact("dB, standard deviation", None, "prosody"),
    "rate": Fact("letters and digits per second", None, "prosody"),
    "pause_share": Fact("share of the clip", None, "prosody"),
    "silence_share": Fact("share of the clip", None, "prosody"),
    "clipped_share": Fact("share of the samples", False, "prosody"),
    "repeated_share": Fact("share of four-code runs", False, "codes"),
    "duration_s": Fact("seconds", None, "clip"),
    "expected_duration_s": Fact(
        "seconds that the text takes at `reward.expected_rate`, or the voice's pace", None, "pace"
    ),
    "duration_ratio": Fact("seconds spoken, first to last sound, per second expected", None, "pace"),
}


@dataclass(frozen=True, slots=True)
class SpokenText:
    """A clip, what it should say, the codes that it was made of, whose voice it should have and what it should sound like.

    Shapes: `codes` [F, Q]. `description` and `emotion`, the name of a feeling, are in English, and empty where not known.
    """

    audio: Audio
    text: str
    language: str
    codes: NDArray[np.int64]
    voice: Voice | None = None
    description: str = ""
    emotion: str = ""


@dataclass(frozen=True, slots=True)
class Findings:
    """The facts that were found, and why others were not.

    `transcript` is None if nothing listened for words or speech, and empty if there was no speech. `edits` are behind the
    error rates among the facts, by their names. `is_gated`: no recogniser listened, because the clip holds no speech.
    """

    facts: Mapping[str, float]
    failures: Mapping[str, str] = field(default_factory=dict)
    transcript: str | None = None
    edits: Mapping[str, EditCounts] = field(default_factory=dict)
    is_gated: bool = False

    def raw(self) -> dict[str, float]:
        """All of it that is a number: facts, edits by kind as `wer/substitutions`, and `gated` where nothing listened."""
        return {**self.facts, **edits_to_row(self.edits), **({"gated": 1.0} if self.is_gated else {})}
