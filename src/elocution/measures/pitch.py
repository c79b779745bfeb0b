"""Fundamental frequency by YIN, vectorised: no light library without a compiler brings one for every Python and system.

Source: de Cheveigné and Kawahara 2002, "YIN, a fundamental frequency estimator for speech and music", steps 1 to 5.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.fft import irfft, next_fast_len, rfft

from elocution.types import Audio

__all__ = ["HOP_S", "fundamental_frequency"]

HOP_S = 0.01
"""Time from one frame to the next, seconds."""
_LOWEST_HZ, _HIGHEST_HZ = 60.0, 500.0
_THRESHOLD = 0.15
_BLOCK = 512


def fundamental_frequency(audio: Audio) -> NDArray[np.float64]:
    """F0 of each 10 ms frame, Hz; NaN where the frame is not voiced. Shapes: [S] -> [frames].

    A frame is voiced if its normalised difference function falls below 0.15 between 60 and 500 Hz.
    """
    rate = audio.sample_rate
    shortest, longest = int(rate / _HIGHEST_HZ), int(np.ceil(rate / _LOWEST_HZ))
    window = longest
    hop = round(HOP_S * rate)
    needed = window + longest
    samples = np.pad(audio.samples.astype(np.float64), (0, max(0, needed - len(audio.samples))))
    starts = np.arange(0, len(samples) - needed + 1, hop)
    found = [
        _frames(samples[starts[first : first + _BLOCK, None] + np.arange(needed)], window, shortest, longest)
        for first in range(0, len(starts), _BLOCK)
    ]
    return rate / np.concatenate(found)


def _frames(frames: NDArray[np.float64], window: int, shortest: int, longest: int) -> NDArray[np.float64]:
    """Period of each frame in samples, NaN where there is none. Shapes: [B, window + longest] -> [B]."""
    # Step 2: the difference function, its cross term through the frequency domain.
    size = next_fast_len(frames.shape[1] + window, real=True)
    cross = irfft(rfft(frames, size) * np.conj(rfft(frames[:, :window], size)), size)[:, : longest + 1]
    power = np.cumsum(np.pad(np.square(frames), ((0, 0), (1, 0))), axis=1)
    lags = np.arange(longest + 1)
    energy = power[:, lags + window] - power[:, lags]
    difference = np.maximum(energy[:, :1] + energy - 2 * cross, 0.0)
    # Step 3: divided by its mean over the shorter lags.
    sums = np.cumsum(difference[:, 1:], axis=1)
    silent = energy[:, 0] <= 1e-10 * window
    normalised = np.ones_like(difference)
    np.divide(difference[:, 1:] * lags[1:], sums, out=normalised[:, 1:], where=sums > 0)
    # Step 4: the first dip below the threshold, followed to its bottom.
    searched = normalised[:, shortest:longest]
    below = searched < _THRESHOLD
    voiced = below.any(axis=1) & ~silent
    at = below.argmax(axis=1)
    rows = np.arange(len(frames))
    for _ in range(searched.shape[1]):
        after = np.minimum(at + 1, searched.shape[1] - 1)
        falls = searched[rows, after] < searched[rows, at]
        if not falls.any():
            break
        at = np.where(falls, after, at)
    # Step 5: a parabola through the dip and its neighbours.
    lag = at + shortest
    before, here, after_ = normalised[rows, lag - 1], normalised[rows, lag], normalised[rows, lag + 1]
    curve = before - 2 * here + after_
    shift = np.divide(0.5 * (before - after_), curve, out=np.zeros_like(here), where=curve > 0)
    return np.where(voiced, lag + np.clip(shift, -0.5, 0.5), np.nan)
