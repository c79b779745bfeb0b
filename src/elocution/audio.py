"""Audio files: read as mono, written whole or not at all."""

import io
from pathlib import Path

import numpy as np
import soundfile
from numpy.typing import NDArray

from elocution.errors import DataError
from elocution.files import reporting_disk_errors, write_bytes_atomically
from elocution.types import Audio

__all__ = ["read_audio", "write_wav"]


def read_audio(path: Path) -> Audio:
    """The clip in `path`, at its own rate; channels are averaged.

    Raises: DataError if the file cannot be read as audio, or holds no sample.
    """
    try:
        samples, sample_rate = soundfile.read(path, dtype="float32", always_2d=True)
    except (OSError, soundfile.SoundFileError) as error:
        raise DataError(f"cannot read {path} as audio: {error}") from error
    if len(samples) == 0:
        raise DataError(f"the audio file {path} holds no sample")
    return Audio(np.ascontiguousarray(samples.mean(axis=1)), int(sample_rate))


def write_wav(path: Path, audio: Audio) -> None:
    """Writes 16-bit mono WAV, and the folder if need be; peaks above full scale are scaled down, not clipped.

    Raises: StorageError if the disk is full or the place cannot be written.
    """
    buffer = io.BytesIO()
    soundfile.write(buffer, _within_full_scale(audio.samples), audio.sample_rate, format="WAV", subtype="PCM_16")
    with reporting_disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes_atomically(path, buffer.getvalue())


def _within_full_scale(samples: NDArray[np.float32]) -> NDArray[np.float32]:
    peak = float(np.abs(samples).max(initial=0.0))
    return samples if peak <= 1.0 else samples / np.float32(peak)
