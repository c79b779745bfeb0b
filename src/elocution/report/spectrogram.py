"""A clip as a small picture: time to the right, frequency upwards, darker is louder."""

import io

import numpy as np
from PIL import Image
from scipy.signal import ShortTimeFFT
from scipy.signal.windows import hann

from elocution.types import Audio

__all__ = ["HEIGHT", "MAX_HZ", "WIDTH", "draw_spectrogram"]

WIDTH, HEIGHT = 240, 64  # pixels
MAX_HZ = 8_000  # the rest of the spectrum says little about speech
_WINDOW_S = 0.025
_RANGE_DB = 60.0  # below the loudest point all is white
_SILENCE_DB = -100.0


def draw_spectrogram(audio: Audio) -> bytes:
    """A PNG of `WIDTH` x `HEIGHT` greys, whatever the clip's length; up to `MAX_HZ`, or half the sample rate if that is less."""
    length = max(16, round(_WINDOW_S * audio.sample_rate))
    samples = np.pad(audio.samples, (0, max(0, length - len(audio.samples))))
    hop = max(1, len(samples) // WIDTH)
    transform = ShortTimeFFT(hann(length), hop, audio.sample_rate, mfft=max(512, 1 << (length - 1).bit_length()))
    power = transform.spectrogram(samples)[transform.f <= MAX_HZ]
    decibels = 10 * np.log10(np.maximum(power, 10 ** (_SILENCE_DB / 10)))
    loudest = max(float(decibels.max()), _SILENCE_DB + _RANGE_DB)  # noise far below hearing is not drawn as speech
    darkness = np.clip(1 + (decibels - loudest) / _RANGE_DB, 0, 1)
    grey = np.uint8(255) - (255 * darkness[::-1]).astype(np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(grey).resize((WIDTH, HEIGHT), Image.Resampling.BOX).quantize(16).save(buffer, "PNG", optimize=True)
    return buffer.getvalue()
