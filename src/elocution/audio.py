"""Audio files: written whole or not at all."""

import os
from pathlib import Path

import numpy as np
import soundfile
from numpy.typing import NDArray

from elocution.types import Audio

__all__ = ["write_wav"]


def write_wav(path: Path, audio: Audio) -> None:
    """Writes 16-bit mono WAV; peaks above full scale are scaled down, not clipped."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.partial")
    try:
        soundfile.write(temporary, _within_full_scale(audio.samples), audio.sample_rate, format="WAV", subtype="PCM_16")
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _within_full_scale(samples: NDArray[np.float32]) -> NDArray[np.float32]:
    peak = float(np.abs(samples).max(initial=0.0))
    return samples if peak <= 1.0 else samples / np.float32(peak)
