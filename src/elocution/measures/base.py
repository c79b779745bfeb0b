"""What a recogniser must do. Knows no reward."""

from typing import Protocol

from elocution.types import Audio

__all__ = ["PhonemeScorer", "Transcriber"]


class Transcriber(Protocol):
    """Hears words; the result for a clip does not depend on the clips before it."""

    def transcribe(self, audio: Audio) -> str:
        """What was said, possibly nothing."""


class PhonemeScorer(Protocol):
    """Judges how likely a clip is to say a text."""

    def nll(self, audio: Audio, text: str) -> float:
        """Negative log-likelihood of `text`, nats per phoneme; lower is better."""
