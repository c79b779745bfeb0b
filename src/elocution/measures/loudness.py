"""Is there anything to hear? An energy gate in front of every recogniser."""

import numpy as np

from elocution.types import Audio

__all__ = ["is_silent", "loudest_level_db"]

_FRAME_S = 0.02
SILENCE_DB = -50.0
"""A clip whose loudest 20 ms lie below this level, dB relative to full scale, holds no speech."""


def loudest_level_db(audio: Audio) -> float:
    """Root mean square of the loudest 20 ms, dB relative to full scale; -inf for digital silence.

    Raises: ValueError if a sample is not finite.
    """
    if not np.isfinite(audio.samples).all():
        raise ValueError("the level of a clip with samples that are not finite is undefined")
    frame = max(1, round(_FRAME_S * audio.sample_rate))
    padded = np.pad(audio.samples.astype(np.float64), (0, -len(audio.samples) % frame))
    energy = (padded.reshape(-1, frame) ** 2).mean(axis=1).max(initial=0.0)
    return float(10 * np.log10(energy)) if energy > 0 else float("-inf")


def is_silent(audio: Audio) -> bool:
    """Whether no 20 ms of the clip reach `SILENCE_DB`."""
    return loudest_level_db(audio) < SILENCE_DB
