"""Clips at the rate that a recogniser was trained on."""

import numpy as np
from numpy.typing import NDArray

from elocution.types import Audio

__all__ = ["samples_at"]


def samples_at(audio: Audio, sample_rate: int) -> NDArray[np.float32]:
    """The clip's samples at `sample_rate` Hz, float32 [S]."""
    if audio.sample_rate == sample_rate:
        return audio.samples
    # Imported here because it takes longer than everything else that a scoring process imports.
    from scipy.signal import resample_poly

    return np.asarray(resample_poly(audio.samples, sample_rate, audio.sample_rate), dtype=np.float32)
