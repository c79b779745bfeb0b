"""Audio files: what is read is what was written, whatever the rate and the channels."""

from pathlib import Path

import numpy as np
import pytest
import soundfile

from elocution.audio import read_audio, write_audio, write_wav
from elocution.errors import DataError
from elocution.types import Audio


def test_a_clip_is_read_as_it_was_written(tmp_path: Path) -> None:
    samples = np.linspace(-1, 1, 50, dtype=np.float32)
    write_wav(tmp_path / "a.wav", Audio(samples, 22_050))
    read = read_audio(tmp_path / "a.wav")
    assert (read.sample_rate, read.samples.dtype, read.samples.shape) == (22_050, np.float32, (50,))
    assert read.samples == pytest.approx(samples, abs=1 / 32_000)


def test_s80_channels_are_averaged(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", np.array([[0.5, 0.25], [-0.5, 0.5]]), 8_000)
    assert read_audio(tmp_path / "a.wav").samples.tolist() == [0.375, 0.0]


@pytest.mark.parametrize(
    ("content", "message"), [(None, "cannot read"), (b"", "cannot read"), (b"RIFF", "cannot read")]
)
def test_s81_what_is_no_audio_is_named(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "a.wav"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_audio(path)


def test_s81_a_file_without_a_sample_is_named(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", np.zeros(0), 8_000)
    with pytest.raises(DataError, match="has no samples"):
        read_audio(tmp_path / "a.wav")


@pytest.mark.parametrize("suffix", ["wav", "FLAC", "ogg", "mp3"])
def test_the_suffix_says_what_kind_of_file_is_written(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"a.{suffix}"
    tone = (1.5 * np.sin(np.arange(16_000) * 2 * np.pi * 440 / 16_000)).astype(np.float32)
    write_audio(path, Audio(tone, 16_000))
    assert soundfile.info(path).format == suffix.upper()
    heard = read_audio(path)
    assert heard.sample_rate == 16_000
    assert np.abs(np.fft.rfft(heard.samples)).argmax() * 16_000 / len(heard.samples) == pytest.approx(440, abs=2)


def test_a_rate_that_a_kind_of_file_cannot_hold_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a\.mp3: \.mp3 at 12345 Hz"):
        write_audio(tmp_path / "a.mp3", Audio(np.zeros(100, np.float32), 12_345))
    assert not (tmp_path / "a.mp3").exists()
