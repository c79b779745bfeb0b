import numpy as np
import pytest

from elocution.measures.resample import samples_at
from elocution.types import Audio


def test_the_same_rate_changes_nothing() -> None:
    audio = Audio(np.ones(100, np.float32), 16_000)
    assert samples_at(audio, 16_000) is audio.samples


@pytest.mark.parametrize("rate", [8_000, 22_050, 24_000, 44_100, 48_000])
def test_s80_duration_and_pitch_survive(rate: int) -> None:
    tone = np.sin(2 * np.pi * 440 * np.arange(rate) / rate).astype(np.float32)
    resampled = samples_at(Audio(tone, rate), 16_000)
    assert resampled.dtype == np.float32
    assert len(resampled) == 16_000
    assert np.abs(np.fft.rfft(resampled)).argmax() == 440
