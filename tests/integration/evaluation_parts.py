"""Judges and models of the tests' own, which scoring processes import by name."""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from elocution.measures.pocketsphinx import BigramTranscriber
from elocution.types import Audio

__all__ = ["FailingJudge", "Level", "Steady"]


class FailingJudge(BigramTranscriber):
    """Fails on clips shorter than 1.5 s as long as the file that BROKEN names is there."""

    def transcribe(self, audio: Audio) -> str:
        if audio.duration_s < 1.5 and Path(os.environ["BROKEN"]).exists():
            raise RuntimeError("the judge is broken")
        return super().transcribe(audio)


class Level:
    """Voices by their mean and greatest level."""

    def embed(self, clips: Sequence[Audio]) -> NDArray[np.float32]:
        return np.array([[np.abs(c.samples).mean(), np.abs(c.samples).max()] for c in clips], np.float32)


class Steady:
    """Finds every clip good."""

    def rate(self, audio: Audio) -> float:
        return 4.0
