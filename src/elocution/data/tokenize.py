"""Recorded speech -> codes in parquet shards, resumable by shard, every clip that was left out listed with its reason.

The columns are those of published sets: `audio_code_ids` is a list of codes, or of rows of codes where a codec has several
codebooks.
"""

import hashlib
import io
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elocution.assets import describe_checksums
from elocution.audio import read_audio
from elocution.codecs import load_codec
from elocution.data.clips import Clip, ClipSource
from elocution.errors import DataError, MissingDependency
from elocution.files import read_json_lines, reporting_disk_errors, write_bytes_atomically, write_text_atomically
from elocution.rewards.pool import ScoringPool

__all__ = ["TokenizeSettings", "Tokenized", "push_shards", "tokenize_clips"]

_STATE = "tokenize.json"


@dataclass(frozen=True)
class TokenizeSettings:
    """How clips become codes. Units: seconds, clips, processes (0: one for each core)."""

    codec: str
    codec_path: Path
    min_s: float = 0.2
    max_s: float = 40.0
    shard_size: int = 1000
    workers: int = 0
    timeout_s: float = 120.0

    def __post_init__(self) -> None:
        if not 0 < self.min_s < self.max_s:
            raise DataError(f"clips of {self.min_s} to {self.max_s} s: the first must be positive and the smaller one")
        if self.shard_size < 1 or self.workers < 0 or self.timeout_s <= 0:
            raise DataError("shard size and time limit must be positive, the number of workers not negative")


@dataclass(frozen=True)
class Tokenized:
    """What a finished set holds. `rejected` are the rows of `rejected.jsonl`: `id` and `reason`."""

    folder: Path
    clips: int
    seconds: float
    rejected: tuple[dict[str, Any], ...]


def tokenize_clips(
    clips: ClipSource, output: Path, settings: TokenizeSettings, *, progress: Callable[[int, int], None] | None = None
) -> Tokenized:
    """Writes `shard-NNNNN.parquet` and `rejected.jsonl` into `output`; shards that are there already are kept.

    `progress` hears (clips done, clips in all).

    Raises: DataError if `output` holds the codes of other clips or another codec; CodecError if the codec cannot be
    loaded; RewardUnavailable if the worker processes cannot start.
    """
    parquet = _import_parquet()
    load_codec(settings.codec, settings.codec_path)  # a codec that cannot be loaded is no clip's fault
    _open_folder(output, _describe(clips, settings))
    total = len(clips.ids)
    factory = partial(_make_encoder, settings)
    with ScoringPool(factory, workers=settings.workers, timeout_s=settings.timeout_s) as pool:
        for shard, start in enumerate(range(0, total, settings.shard_size)):
            end = min(start + settings.shard_size, total)
            path = output / f"shard-{shard:05d}.parquet"
            if not path.exists():
                heard = partial(_shifted, progress, start, total) if progress else None
                _write_shard(parquet, path, clips, range(start, end), pool, heard)
            if progress:
                progress(end, total)
    return _summary(parquet, output)


@dataclass(frozen=True)
class _Codes:
    codes: NDArray[np.int64]
    seconds: float


def _make_encoder(settings: TokenizeSettings) -> Callable[[Clip], _Codes]:
    codec = load_codec(settings.codec, settings.codec_path)

    def encode(clip: Clip) -> _Codes:
        audio = read_audio(clip.audio)
        if not settings.min_s <= audio.duration_s <= settings.max_s:
            raise DataError(f"{audio.duration_s:.2f} s long, expected {settings.min_s} to {settings.max_s} s")
        return _Codes(codec.encode(audio), audio.duration_s)

    return encode


def _describe(clips: ClipSource, settings: TokenizeSettings) -> dict[str, Any]:
    """What the shards depend on."""
    checksums = describe_checksums(settings.codec_path)
    return {
        "clips": len(clips.ids),
        "ids_sha256": hashlib.sha256("\n".join(clips.ids).encode()).hexdigest(),
        "codec": settings.codec,
        "codec_sha256": hashlib.sha256(checksums.encode()).hexdigest(),
        **{key: asdict(settings)[key] for key in ("min_s", "max_s", "shard_size")},
    }


def _open_folder(output: Path, wanted: dict[str, Any]) -> None:
    state = output / _STATE
    if state.is_file():
        found = json.loads(state.read_text(encoding="utf-8"))
        different = [key for key in wanted if found.get(key) != wanted[key]]
        if different:
            raise DataError(
                f"{output} holds the codes of another call: {', '.join(different)} differ; name another folder, or delete it"
            )
        return
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise DataError(f"{output} is there and is no folder of codes; name another one")
    with reporting_disk_errors(output):
        output.mkdir(parents=True, exist_ok=True)
    write_text_atomically(state, json.dumps(wanted, indent=2) + "\n")


def _write_shard(
    parquet: Any,
    path: Path,
    clips: ClipSource,
    indices: range,
    pool: ScoringPool[Clip, _Codes],
    progress: Callable[[int, int], None] | None,
) -> None:
    """The shard appears last, so that one which is there is whole."""
    import pyarrow

    read = list(_read(clips, indices))
    good = [clip for clip in read if isinstance(clip, Clip)]
    results = dict(zip([clip.id for clip in good], pool.map(good, progress), strict=True))
    rows: list[dict[str, Any]] = []
    rejected = []
    for index, clip in zip(indices, read, strict=True):
        found = clip if isinstance(clip, Exception) else results[clip.id]
        if isinstance(clip, Exception) or isinstance(found, Exception):
            rejected.append({"id": clips.ids[index], "reason": str(found) or type(found).__name__})
            continue
        codes = found.codes[:, 0] if found.codes.shape[1] == 1 else found.codes
        rows.append(
            {
                "id": clip.id,
                "text": clip.text,
                "language": clip.language,
                "audio_code_ids": codes.tolist(),
                "seconds": found.seconds,
            }
        )
    write_text_atomically(
        path.with_name(f"rejected-{path.stem.partition('-')[2]}.jsonl"),
        "".join(f"{json.dumps(row)}\n" for row in rejected),
    )
    codes_type = pyarrow.list_(pyarrow.int64())
    if any(found.codes.shape[1] > 1 for found in results.values() if isinstance(found, _Codes)):
        codes_type = pyarrow.list_(codes_type)
    schema = pyarrow.schema(
        {
            "id": pyarrow.string(),
            "text": pyarrow.string(),
            "language": pyarrow.string(),
            "audio_code_ids": codes_type,
            "seconds": pyarrow.float64(),
        }
    )
    buffer = io.BytesIO()
    parquet.write_table(pyarrow.Table.from_pylist(rows, schema=schema), buffer)
    write_bytes_atomically(path, buffer.getvalue())


def _read(clips: ClipSource, indices: range) -> Iterator[Clip | DataError]:
    for index in indices:
        try:
            yield clips[index]
        except DataError as error:
            yield error


def _shifted(progress: Callable[[int, int], None], start: int, total: int, done: int, _: int) -> None:
    progress(start + done, total)


def _summary(parquet: Any, output: Path) -> Tokenized:
    rejected = [row for path in sorted(output.glob("rejected-*.jsonl")) for row in read_json_lines(path)[0]]
    write_text_atomically(output / "rejected.jsonl", "".join(f"{json.dumps(row)}\n" for row in rejected))
    clips, seconds = 0, 0.0
    for path in sorted(output.glob("shard-*.parquet")):
        column = parquet.read_table(path, columns=["seconds"])["seconds"].to_pylist()
        clips, seconds = clips + len(column), seconds + sum(column)
    return Tokenized(output, clips, seconds, tuple(rejected))


def _import_parquet() -> Any:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise MissingDependency.naming("pyarrow", "data") from error
    return pyarrow.parquet


def push_shards(output: Path, name: str) -> None:
    """Uploads the shards in `output` as the dataset `name` of the Hugging Face Hub, with the token of its own command line.

    Raises: MissingDependency without `datasets`; what `huggingface_hub` raises if the upload fails.
    """
    try:
        import datasets
    except ImportError as error:
        raise MissingDependency.naming("datasets", "data") from error
    files = sorted(map(str, output.glob("shard-*.parquet")))
    datasets.load_dataset("parquet", data_files=files, split="train").push_to_hub(name)
