import numpy as np
import pytest

from elocution.measures.loudness import is_silent, loudest_level_db
from elocution.types import Audio

RATE = 16_000


def _sine(amplitude: float, duration_s: float = 0.5) -> Audio:
    time = np.arange(round(duration_s * RATE)) / RATE
    return Audio((amplitude * np.sin(2 * np.pi * 200 * time)).astype(np.float32), RATE)


def test_a_full_scale_sine_lies_three_decibels_below_full_scale() -> None:
    assert loudest_level_db(_sine(1.0)) == pytest.approx(-3.01, abs=0.01)


def test_the_gate_lies_at_minus_fifty_decibels() -> None:
    # A sine of amplitude a has a level of 20 log10(a) - 3.01 dB: 0.0044 gives -50.1 dB, 0.0046 gives -49.8 dB.
    assert is_silent(_sine(0.0044))
    assert not is_silent(_sine(0.0046))


@pytest.mark.parametrize("samples", [0, 1, 319, 32_000])
def test_s01_digital_silence_of_any_length_is_silent(samples: int) -> None:
    assert is_silent(Audio(np.zeros(samples, np.float32), RATE))


def test_one_loud_word_in_a_long_pause_is_heard() -> None:
    pause = np.zeros(10 * RATE, np.float32)
    assert not is_silent(Audio(np.concatenate([pause, _sine(0.1, 0.2).samples, pause]), RATE))


def test_samples_that_are_not_finite_are_no_silence() -> None:
    with pytest.raises(ValueError, match="not finite"):
        is_silent(Audio(np.full(RATE, np.nan, np.float32), RATE))


def test_speech_is_not_silent(spoken: dict[str, Audio]) -> None:
    assert not any(is_silent(clip) for clip in spoken.values())
