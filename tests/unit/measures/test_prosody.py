"""Pitch and prosody: sounds whose numbers are known, and what each kind of collapse does to real speech."""

import numpy as np
import pytest
from scipy.signal import chirp, resample_poly

from elocution.measures.pitch import HOP_S, fundamental_frequency
from elocution.measures.prosody import measure_prosody, repeated_share
from elocution.types import Audio

RATE = 16_000


def voice(hz: float, seconds: float = 1.0, rate: int = RATE, harmonics: int = 8) -> Audio:
    """Harmonics that weaken, as of a vowel."""
    time = np.arange(int(seconds * rate)) / rate
    wave = sum(np.sin(2 * np.pi * hz * n * time) / n for n in range(1, harmonics + 1))
    return Audio(np.asarray(0.2 * wave, dtype=np.float32), rate)


@pytest.mark.parametrize("hz", [62.0, 80.0, 123.4, 220.0, 311.0, 490.0])
@pytest.mark.parametrize("rate", [16_000, 24_000])
def test_a_steady_tones_pitch_is_its_frequency(hz: float, rate: int) -> None:
    np.testing.assert_allclose(fundamental_frequency(voice(hz, rate=rate)), hz, rtol=0.003)


def test_pitch_follows_a_glide() -> None:
    time = np.arange(2 * RATE) / RATE
    glide = Audio(chirp(time, 100, 2, 300).astype(np.float32), RATE)
    f0 = fundamental_frequency(glide)
    longest = 1 / 60  # the frame looks two of the longest periods ahead
    expected = 100 + 100 * (np.arange(len(f0)) * HOP_S + longest)
    np.testing.assert_allclose(f0, expected, rtol=0.02)


def test_the_mean_pitch_weighs_every_voiced_frame_and_the_median_is_the_usual_one() -> None:
    found = measure_prosody(
        Audio(np.concatenate([voice(100, 3.0).samples, voice(250).samples]), RATE), "three parts low and one high"
    )
    assert found.f0_hz == pytest.approx(100, rel=0.01)
    assert found.f0_mean_hz == pytest.approx(0.75 * 100 + 0.25 * 250, rel=0.02)


@pytest.mark.parametrize("kind", ["silence", "noise", "short"])
def test_what_is_not_voiced_has_no_pitch(kind: str) -> None:
    samples = {
        "silence": np.zeros(RATE),
        "noise": np.random.default_rng(0).normal(0, 0.1, RATE),
        "short": np.zeros(10),
    }[kind]
    assert np.isnan(fundamental_frequency(Audio(samples.astype(np.float32), RATE))).mean() > 0.99


def test_pitch_of_real_speech_is_a_womans_and_moves(spoken: dict[str, Audio]) -> None:
    for text, clip in spoken.items():
        found = measure_prosody(clip, text)
        assert found.f0_hz is not None
        assert 150 < found.f0_hz < 260, text
        assert found.f0_spread is not None
        assert found.f0_spread > 1, text
        assert found.rate is not None
        assert 5 < found.rate < 25, text
        assert found.clipped_share == 0


def test_s12_a_flat_voice_has_no_pitch_spread_and_a_monotone_level_no_energy_spread() -> None:
    found = measure_prosody(voice(200), "a" * 12)
    assert found.f0_spread == pytest.approx(0, abs=0.05)
    assert found.energy_spread_db == pytest.approx(0, abs=0.2)
    assert found.rate == pytest.approx(12)
    assert found.silence_share == found.pause_share == 0


def test_s12_faster_speech_has_a_higher_rate_and_louder_speech_is_clipped(spoken: dict[str, Audio]) -> None:
    for text, clip in spoken.items():
        plain = measure_prosody(clip, text)
        fast = measure_prosody(Audio(resample_poly(clip.samples, 2, 3).astype(np.float32), RATE), text)
        assert plain.rate is not None
        assert fast.rate == pytest.approx(1.5 * plain.rate, rel=0.05)
        loud = measure_prosody(Audio(np.clip(clip.samples * 50, -1, 1), RATE), text)
        assert loud.clipped_share > 0.05


def test_pauses_are_silences_between_sounds_and_silence_is_all_of_it() -> None:
    tone = voice(200, 0.5).samples
    samples = np.concatenate([np.zeros(RATE // 2), tone, np.zeros(RATE // 2), tone, np.zeros(RATE // 2)])
    found = measure_prosody(Audio(samples.astype(np.float32), RATE), "abc")
    assert found.pause_share == pytest.approx(0.2, abs=0.01)
    assert found.silence_share == pytest.approx(0.6, abs=0.01)
    assert found.rate == pytest.approx(3 / 1.5, rel=0.02)


def test_a_short_gap_is_no_pause() -> None:
    tone = voice(200, 0.5).samples
    samples = np.concatenate([tone, np.zeros(RATE // 10), tone]).astype(np.float32)
    assert measure_prosody(Audio(samples, RATE), "abc").pause_share == 0


def test_silence_has_shares_and_nothing_else() -> None:
    found = measure_prosody(Audio(np.zeros(RATE, dtype=np.float32), RATE), "abc")
    assert (found.f0_hz, found.f0_spread, found.energy_spread_db, found.rate) == (None, None, None, None)
    assert found.silence_share == 1


@pytest.mark.parametrize("samples", [np.zeros(0), np.full(RATE, np.nan)])
def test_a_clip_without_numbers_is_refused(samples: np.ndarray) -> None:
    with pytest.raises(ValueError, match="no prosody"):
        measure_prosody(Audio(samples.astype(np.float32), RATE), "abc")


def test_s27_a_loop_of_codes_repeats_and_speech_does_not() -> None:
    speech = np.random.default_rng(0).integers(0, 2048, (100, 1))
    assert repeated_share(speech) == 0
    assert repeated_share(np.zeros((100, 1), dtype=np.int64)) == pytest.approx(1 - 1 / 97)
    assert repeated_share(np.tile(speech[:10], (10, 1))) == pytest.approx(1 - 10 / 97)
    assert repeated_share(speech[:4]) == 0
    # In a residual codec a run repeats only if every codebook does.
    assert repeated_share(np.concatenate([np.zeros_like(speech), speech], axis=1)) == 0
