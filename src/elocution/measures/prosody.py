"""How something was said, in numbers that fall out of place when a policy collapses: pitch, level, pace, pauses, clipping."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elocution.measures.pitch import HOP_S, fundamental_frequency
from elocution.types import Audio

__all__ = ["Prosody", "count_letters", "measure_prosody", "repeated_share", "spoken_s"]

_PAUSE_BELOW_PEAK_DB = 35.0
_SHORTEST_PAUSE_S = 0.15
_FULL_SCALE = 0.999


@dataclass(frozen=True, slots=True)
class Prosody:
    """Measures of one clip; a value is None where the clip has nothing to take it from.

    Units: Hz, median (`f0_hz`), which octave errors do not move, and mean; semitones around the clip's median; dB; letters and digits per second between the first and the last sound;
    shares of the clip, of which `pause` counts silences of 150 ms or more between sounds, and `silence` all silence.
    """

    f0_hz: float | None
    f0_mean_hz: float | None
    f0_spread: float | None
    energy_spread_db: float | None
    rate: float | None
    pause_share: float
    silence_share: float
    clipped_share: float


def measure_prosody(audio: Audio, text: str) -> Prosody:
    """The prosody of `audio`, which says `text`.

    Raises: ValueError if the clip has no samples, or some that are no numbers.
    """
    samples = audio.samples
    if len(samples) == 0 or not np.isfinite(samples).all():
        raise ValueError("a clip without samples, or with some that are no numbers, has no prosody")
    f0 = fundamental_frequency(audio)
    f0 = f0[~np.isnan(f0)]
    levels = _levels_db(audio)
    sounding = _sounding(levels)
    where = np.flatnonzero(sounding)
    return Prosody(
        f0_hz=float(np.median(f0)) if len(f0) else None,
        f0_mean_hz=float(f0.mean()) if len(f0) else None,
        f0_spread=float(np.std(12 * np.log2(f0 / np.median(f0)))) if len(f0) > 1 else None,
        energy_spread_db=float(np.std(levels[sounding])) if len(where) > 1 else None,
        rate=count_letters(text) / _between_ends_s(where) if len(where) else None,
        pause_share=_pause_frames(sounding, round(_SHORTEST_PAUSE_S / HOP_S)) / len(levels),
        silence_share=1.0 - len(where) / len(levels),
        clipped_share=float((np.abs(samples) >= _FULL_SCALE).mean()),
    )


def count_letters(text: str) -> int:
    """Letters and digits of a text, in which its pace is counted."""
    return sum(character.isalnum() for character in text)


def spoken_s(audio: Audio) -> float:
    """Seconds from the first sound to the last; 0 in silence."""
    return _between_ends_s(np.flatnonzero(_sounding(_levels_db(audio))))


def _between_ends_s(frames: NDArray[np.intp]) -> float:
    return float(frames[-1] - frames[0] + 1) * HOP_S if len(frames) else 0.0


def _sounding(levels: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which 10 ms are no pause: within 35 dB of the loudest."""
    peak = levels.max(initial=-np.inf)
    return levels > peak - _PAUSE_BELOW_PEAK_DB if np.isfinite(peak) else np.zeros(len(levels), bool)


def _levels_db(audio: Audio) -> NDArray[np.float64]:
    """Root mean square of each 10 ms, dB relative to full scale; -inf for digital silence."""
    hop = max(1, round(HOP_S * audio.sample_rate))
    padded = np.pad(audio.samples.astype(np.float64), (0, -len(audio.samples) % hop))
    energy = np.square(padded.reshape(-1, hop)).mean(axis=1)
    levels = np.full(len(energy), -np.inf)
    np.log10(energy, out=levels, where=energy > 0)
    return 10 * levels


def _pause_frames(sounding: NDArray[np.bool_], shortest: int) -> int:
    """Silent frames in runs of at least `shortest` that have sound on both sides."""
    where = np.flatnonzero(sounding)
    gaps = np.diff(where) - 1
    return int(gaps[gaps >= shortest].sum())


def repeated_share(codes: NDArray[np.int64], size: int = 4) -> float:
    """The share of runs of `size` codes that occurred before in the clip: 0 for speech, near 1 for a loop.

    Shapes: `codes` [F, Q]. A clip that is shorter than `size` + 1 has none.
    """
    if len(codes) <= size:
        return 0.0
    runs = np.lib.stride_tricks.sliding_window_view(codes, size, axis=0).reshape(len(codes) - size + 1, -1)
    return 1.0 - len(np.unique(runs, axis=0)) / len(runs)
