"""What a recogniser, a likelihood and a speaker encoder must do. Knows no reward."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from elocution.measures.error_rates import EditCounts
from elocution.types import Audio

__all__ = [
    "BatchScorer",
    "BatchTranscriber",
    "DescriptionScorer",
    "HearsAndScores",
    "Likelihood",
    "PhonemeScorer",
    "SpeakerEncoder",
    "Transcriber",
]


class Transcriber(Protocol):
    """Hears words; the result for a clip does not depend on the clips before it."""

    def transcribe(self, audio: Audio) -> str:
        """What was said, possibly nothing."""


@runtime_checkable
class BatchTranscriber(Protocol):
    """A transcriber of several languages, or of clips that are faster heard together than one by one."""

    def transcribe_all(self, clips: Sequence[Audio], languages: Sequence[str]) -> list[str]:
        """What was said in each clip, in the language (ISO 639-1) that it should be in; the others do not change it."""


@dataclass(frozen=True, slots=True)
class Likelihood:
    """How well a clip says a text.

    `nll` is the negative log-likelihood of the text, nats per unit of it, lower is better; infinite if the clip is too
    short to hold the text. Units are what the scorer counts in, phonemes or tokens: `num_wanted` make up the text,
    `num_heard` were heard, whichever they were. `phonemes` are the edits between the two where the units are phonemes.
    `no_speech` is the probability that nobody speaks, where the scorer gives one.
    """

    nll: float
    num_wanted: int
    num_heard: int
    phonemes: EditCounts | None = None
    no_speech: float | None = None

    @property
    def is_speech(self) -> bool:
        """Whether units were heard at all: noise, hum and music give none, a click at most one."""
        return self.num_heard >= min(2, self.num_wanted)


class PhonemeScorer(Protocol):
    """Judges how likely a clip is to say a text; independent of the clips before it."""

    def score(self, audio: Audio, text: str) -> Likelihood:
        """The likelihood of a normalised text.

        Raises: ValueError if nothing in the text can be pronounced.
        """


@runtime_checkable
class BatchScorer(Protocol):
    """A scorer of several languages, which wants texts as they are written."""

    def score_all(self, clips: Sequence[Audio], texts: Sequence[str], languages: Sequence[str]) -> list[Likelihood]:
        """The likelihood of each text in its clip; the other clips do not change it."""


@runtime_checkable
class HearsAndScores(Protocol):
    """One model that transcribes and scores in one pass."""

    def hear_all(
        self, clips: Sequence[Audio], texts: Sequence[str], languages: Sequence[str]
    ) -> list[tuple[str, Likelihood]]:
        """Transcript and likelihood of each text in its clip; the other clips do not change them."""


class DescriptionScorer(Protocol):
    """Says how well clips fit descriptions in English words."""

    def similarities(self, clips: Sequence[Audio], descriptions: Sequence[Sequence[str]]) -> list[list[float]]:
        """Cosines of each clip and each of its descriptions, of which it has one or more, in [-1, 1]; higher fits better."""


class SpeakerEncoder(Protocol):
    """Places voices so that those of one speaker are near each other."""

    def embed(self, clips: Sequence[Audio]) -> NDArray[np.float32]:
        """Embeddings [B, D] of unit length. What else is in the batch, and how long it is, does not change one.

        Raises: ValueError if a clip is too short or too quiet to hold a voice.
        """
