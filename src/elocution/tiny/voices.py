"""Several voices and manners of speaking from one: pitch, formants, melody and tempo changed with the WORLD vocoder."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from elocution.errors import MissingDependency

__all__ = ["STYLES", "VOICES", "Style", "Voice", "speak_as"]

_FRAME_MS = 10.0  # as long as the codecs' frames; shorter ones take longer and are not heard


@dataclass(frozen=True)
class Voice:
    """Factors of the mean pitch and of the frequencies of the formants."""

    pitch: float
    formants: float


@dataclass(frozen=True)
class Style:
    """Factors of the melody's spread about the mean pitch, of the mean pitch itself, and of the tempo."""

    melody: float
    pitch: float
    tempo: float


# Far apart in pitch or vocal tract, all within what a recogniser for adults understands.
VOICES: Mapping[str, Voice] = MappingProxyType(
    {
        "ada": Voice(pitch=1.0, formants=1.0),
        "bert": Voice(pitch=0.52, formants=0.84),
        "cleo": Voice(pitch=1.3, formants=1.06),
        "dan": Voice(pitch=0.7, formants=0.93),
    }
)
STYLES: Mapping[str, Style] = MappingProxyType(
    {
        "calm": Style(melody=0.5, pitch=0.95, tempo=0.88),
        "neutral": Style(melody=1.0, pitch=1.0, tempo=1.0),
        "excited": Style(melody=1.6, pitch=1.12, tempo=1.12),
    }
)


def speak_as(samples: NDArray[np.float32], sample_rate: int, voice: Voice, style: Style) -> NDArray[np.float32]:
    """The same words in another voice and manner, at most as loud as full scale. Shapes: [S] -> [S'].

    Raises: MissingDependency if pyworld is not installed.
    Source: WORLD, Morise et al. 2016.
    """
    try:
        import pyworld
    except ImportError as error:
        raise MissingDependency.naming("pyworld", "tiny-build") from error
    wave = samples.astype(np.float64)
    coarse, times = pyworld.dio(wave, sample_rate, frame_period=_FRAME_MS)
    pitch = pyworld.stonemask(wave, coarse, times, sample_rate)
    envelope = pyworld.cheaptrick(wave, pitch, times, sample_rate)
    noise = pyworld.d4c(wave, pitch, times, sample_rate)
    made = pyworld.synthesize(
        _melody(pitch, voice.pitch * style.pitch, style.melody),
        _warped(envelope, voice.formants),
        _warped(noise, voice.formants),
        sample_rate,
        frame_period=_FRAME_MS / style.tempo,
    )
    peak = max(1.0, float(np.abs(made).max()))
    scaled: NDArray[np.float32] = (made / peak).astype(np.float32)
    return scaled


def _melody(pitch: NDArray[np.float64], shift: float, spread: float) -> NDArray[np.float64]:
    """Pitch about its mean, on a scale of logarithms; 0 where unvoiced stays 0."""
    voiced = pitch > 0
    if not voiced.any():
        return pitch
    logs = np.log(pitch[voiced])
    changed = np.zeros_like(pitch)
    changed[voiced] = np.exp(logs.mean() + np.log(shift) + spread * (logs - logs.mean()))
    return changed


def _warped(spectra: NDArray[np.float64], factor: float) -> NDArray[np.float64]:
    """What was at frequency f is at f * factor; the top band goes on where nothing is known. Shapes: [T, bins]."""
    bins = np.arange(spectra.shape[1])
    sources = np.minimum(bins / factor, bins[-1])
    low = np.floor(sources).astype(int)
    high = np.minimum(low + 1, bins[-1])
    share = sources - low
    warped: NDArray[np.float64] = np.ascontiguousarray(spectra[:, low] * (1 - share) + spectra[:, high] * share)
    return warped
