"""Needs pyworld, of the extra `tiny-build`; skipped where it is absent."""

import itertools

import numpy as np
import pytest

from elocution.assets import resolve_path
from elocution.audio import read_audio
from elocution.tiny.voices import STYLES, VOICES, Style, Voice, speak_as

pytestmark = pytest.mark.filterwarnings("ignore:pkg_resources is deprecated")
PLAIN = Style(melody=1.0, pitch=1.0, tempo=1.0)


@pytest.fixture(scope="module")
def clip() -> np.ndarray:
    pytest.importorskip("pyworld", reason="pip install 'elocution[tiny-build]' brings the vocoder")
    return read_audio(resolve_path("builtin:tiny-clip")).samples


def mean_pitch(samples: np.ndarray) -> float:
    import pyworld

    pitch, _ = pyworld.dio(samples.astype(np.float64), 16_000)
    return float(np.exp(np.log(pitch[pitch > 0]).mean()))


def centroid(samples: np.ndarray) -> float:
    """Where the middle of the spectrum lies, Hz."""
    power = np.abs(np.fft.rfft(samples)) ** 2
    return float((power * np.fft.rfftfreq(len(samples), 1 / 16_000)).sum() / power.sum())


def test_four_voices_are_far_apart(clip: np.ndarray) -> None:
    pitches = sorted(mean_pitch(speak_as(clip, 16_000, voice, PLAIN)) for voice in VOICES.values())
    assert len(pitches) == 4
    assert all(high / low > 1.2 for low, high in itertools.pairwise(pitches))


def test_formants_move_without_the_pitch(clip: np.ndarray) -> None:
    low, high = (speak_as(clip, 16_000, Voice(1.0, factor), PLAIN) for factor in (0.85, 1.15))
    assert mean_pitch(low) == pytest.approx(mean_pitch(high), rel=0.05)
    assert centroid(high) > 1.1 * centroid(low)


def test_styles_differ_in_tempo_and_melody(clip: np.ndarray) -> None:
    import pyworld

    spread = {}
    for name, style in STYLES.items():
        made = speak_as(clip, 16_000, VOICES["ada"], style)
        assert len(made) / 16_000 == pytest.approx(len(clip) / 16_000 / style.tempo, abs=0.05)
        pitch, _ = pyworld.dio(made.astype(np.float64), 16_000)
        spread[name] = np.log(pitch[pitch > 0]).std()
    assert spread["calm"] < spread["neutral"] < spread["excited"]


def test_silence_stays_silent() -> None:
    pytest.importorskip("pyworld", reason="pip install 'elocution[tiny-build]' brings the vocoder")
    made = speak_as(np.zeros(8000, np.float32), 16_000, VOICES["bert"], STYLES["calm"])
    assert np.abs(made).max() < 1e-3
