import io

import numpy as np
import pytest
from PIL import Image

from elocution.report.spectrogram import HEIGHT, MAX_HZ, WIDTH, draw_spectrogram
from elocution.types import Audio


def picture(samples: np.ndarray, sample_rate: int = 16_000) -> np.ndarray:
    """Darkness, 0 to 255, from the lowest frequency upwards. Shapes: [HEIGHT, WIDTH]."""
    drawn = Image.open(io.BytesIO(draw_spectrogram(Audio(samples.astype(np.float32), sample_rate)))).convert("L")
    return 255 - np.asarray(drawn, dtype=int)[::-1]


@pytest.mark.parametrize("hz", [1000, 6000])
def test_a_tone_is_a_line_at_its_height(hz: int) -> None:
    time = np.arange(16_000) / 16_000
    dark = picture(0.3 * np.sin(2 * np.pi * hz * time))
    assert dark.shape == (HEIGHT, WIDTH)
    assert abs(dark[:, WIDTH // 2].argmax() - hz / MAX_HZ * HEIGHT) <= 2


def test_time_goes_to_the_right() -> None:
    samples = np.concatenate([np.zeros(8_000), np.random.default_rng(0).normal(0, 0.1, 8_000)])
    dark = picture(samples)
    assert dark[:, : WIDTH // 3].max() == 0
    assert dark[:, -WIDTH // 3 :].mean() > 128


@pytest.mark.parametrize("count", [1, 300])
def test_silence_and_a_clip_shorter_than_a_window_have_a_picture(count: int) -> None:
    assert picture(np.zeros(count)).max() == 0
