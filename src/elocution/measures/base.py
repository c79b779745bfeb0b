"""What a recogniser must do. Knows no reward."""

from dataclasses import dataclass
from typing import Protocol

from elocution.types import Audio

__all__ = ["Likelihood", "PhonemeScorer", "Transcriber"]


class Transcriber(Protocol):
    """Hears words; the result for a clip does not depend on the clips before it."""

    def transcribe(self, audio: Audio) -> str:
        """What was said, possibly nothing."""


@dataclass(frozen=True, slots=True)
class Likelihood:
    """How well a clip says a text.

    `nll` is the negative log-likelihood of the text, nats per phoneme of it, lower is better; infinite if the clip
    is too short to hold the text. `num_wanted` phonemes make up the text, `num_heard` were heard, whichever they were.
    """

    nll: float
    num_wanted: int
    num_heard: int

    @property
    def is_speech(self) -> bool:
        """Whether phonemes were heard at all: noise, hum and music give none, a click at most one."""
        return self.num_heard >= min(2, self.num_wanted)


class PhonemeScorer(Protocol):
    """Judges how likely a clip is to say a text; independent of the clips before it."""

    def score(self, audio: Audio, text: str) -> Likelihood:
        """The likelihood of a normalised text.

        Raises: ValueError if nothing in the text can be pronounced.
        """
