"""What a codec makes of its own codes: the first clip of a set decoded again, to be compared and heard."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from elocution.audio import read_audio, write_wav
from elocution.codecs import load_codec
from elocution.codecs.mel import MelSettings, log_mel_blocks
from elocution.data.clips import ClipSource
from elocution.data.tokenize import TokenizeSettings
from elocution.measures.resample import samples_at
from elocution.types import Audio

__all__ = ["USUAL_LIKENESS", "RoundTrip", "decode_first", "spectral_likeness"]

USUAL_LIKENESS = 0.7
"""A whole codec comes closer: the tiny one to 0.96 and more. Another clip of the same voice comes to 0.63 at most, noise to 0."""

_FRAMES = MelSettings(frames_per_code=1)


@dataclass(frozen=True)
class RoundTrip:
    """The clip `id` after encoding and decoding, in the file `path`. `likeness` is as in `spectral_likeness`."""

    id: str
    path: Path
    likeness: float


def decode_first(clips: ClipSource, output: Path, settings: TokenizeSettings) -> RoundTrip | None:
    """Writes `decoded.wav` into the finished set `output`; None if that holds no clip.

    Raises: CodecError, StorageError.
    """
    import pyarrow.parquet as parquet

    shards = sorted(output.glob("shard-*.parquet"))
    row = next((row for shard in shards for row in parquet.read_table(shard).slice(0, 1).to_pylist()), None)
    if row is None:
        return None
    codes = np.array(row["audio_code_ids"], np.int64).reshape(len(row["audio_code_ids"]), -1)
    (decoded,) = load_codec(settings.codec, settings.codec_path).decode([codes])
    path = output / "decoded.wav"
    write_wav(path, decoded)
    original = read_audio(clips[clips.ids.index(row["id"])].audio)
    return RoundTrip(row["id"], path, spectral_likeness(original, decoded))


def spectral_likeness(one: Audio, other: Audio) -> float:
    """Correlation of two clips' log-mel spectrograms over the length that both have, -1 to 1; 0 where one is constant."""
    first, second = (
        log_mel_blocks(torch.from_numpy(samples_at(clip, _FRAMES.sample_rate)), _FRAMES) for clip in (one, other)
    )
    frames = min(len(first), len(second))
    pair = torch.stack([first[:frames].flatten(), second[:frames].flatten()]).double()
    correlation: float = torch.corrcoef(pair)[0, 1].nan_to_num(0.0).item()
    return correlation
