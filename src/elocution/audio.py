"""Audio files: read with every fault named, written whole or not at all."""

import io
from pathlib import Path

import numpy as np
import soundfile
from numpy.typing import NDArray

from elocution.errors import DataError
from elocution.files import reporting_disk_errors, write_bytes_atomically
from elocution.types import Audio

__all__ = ["check_audio_path", "encode_wav", "find_audio_fault", "read_audio", "write_audio", "write_wav"]


def encode_wav(audio: Audio, *, exact: bool = False) -> bytes:
    """The bytes of a mono WAV file: 16 bits, peaks above full scale scaled down, not clipped; or the samples as they are."""
    buffer = io.BytesIO()
    samples = audio.samples if exact else _within_full_scale(audio.samples)
    soundfile.write(buffer, samples, audio.sample_rate, format="WAV", subtype="FLOAT" if exact else "PCM_16")
    return buffer.getvalue()


def write_wav(path: Path, audio: Audio) -> None:
    """Writes what `encode_wav` gives, and the folder if need be.

    Raises: StorageError if the disk is full or the place cannot be written.
    """
    with reporting_disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes_atomically(path, encode_wav(audio))


def check_audio_path(path: Path) -> None:
    """Raises: DataError if libsndfile writes no such files as the suffix of `path` names."""
    if _format_of(path) not in soundfile.available_formats():
        raise DataError(
            f"cannot write {path}: {path.suffix or 'a name without a suffix'} is no kind of audio file; "
            "use .wav, .flac, .ogg or .mp3"
        )


def write_audio(path: Path, audio: Audio) -> None:
    """Writes the kind of file that the suffix of `path` names; peaks above full scale are scaled down, not clipped.

    Raises: DataError if that is no kind of audio file, or it cannot hold this sample rate; StorageError if the disk is full
    or the place cannot be written.
    """
    check_audio_path(path)
    buffer = io.BytesIO()
    try:
        soundfile.write(buffer, _within_full_scale(audio.samples), audio.sample_rate, format=_format_of(path))
    except (soundfile.LibsndfileError, ValueError) as error:
        raise DataError(f"cannot write {path}: {path.suffix} at {audio.sample_rate} Hz: {error}") from error
    write_bytes_atomically(path, buffer.getvalue())


def _format_of(path: Path) -> str:
    return path.suffix.lower().removeprefix(".").upper()


def _within_full_scale(samples: NDArray[np.float32]) -> NDArray[np.float32]:
    peak = float(np.abs(samples).max(initial=0.0))
    return samples if peak <= 1.0 else samples / np.float32(peak)


def read_audio(source: Path | bytes) -> Audio:
    """A file, or the bytes of one, in any format that libsndfile reads; channels are averaged, the rate is kept.

    Raises: DataError if it cannot be read, is empty, or has samples that are no numbers.
    """
    name = source if isinstance(source, Path) else "the clip"
    try:
        samples, sample_rate = soundfile.read(
            source if isinstance(source, Path) else io.BytesIO(source), dtype="float32", always_2d=True
        )
    except (OSError, soundfile.LibsndfileError) as error:
        raise DataError(f"cannot read {name} as audio: {error}") from error
    if len(samples) == 0:
        raise DataError(f"{name} has no samples")
    if not np.isfinite(samples).all():
        raise DataError(f"{name} has samples that are no numbers")
    return Audio(samples.mean(axis=1, dtype=np.float32), int(sample_rate))


def find_audio_fault(path: Path) -> str | None:
    """Why `path` cannot be read as audio, or None; looks at the file's head alone."""
    if not path.is_file():
        return f"there is no file {path}"
    try:
        frames = soundfile.info(str(path)).frames
    except (OSError, soundfile.LibsndfileError) as error:
        return f"cannot read {path} as audio: {error}"
    return None if frames else f"{path} has no samples"
