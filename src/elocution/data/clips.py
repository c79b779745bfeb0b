"""Where recorded speech comes from: a folder, a manifest or a Hugging Face dataset, as one sequence of clips."""

import csv
import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from elocution.audio import find_audio_fault
from elocution.errors import DataError, MissingDependency
from elocution.files import read_json_lines
from elocution.types import Voice

__all__ = ["Clip", "ClipSource", "open_clips"]

_AUDIO_SUFFIXES = frozenset({".wav", ".flac", ".ogg", ".mp3", ".opus", ".aiff"})
_OPTIONAL = ("prompt_audio", "prompt_text", "description", "emotion", "control")
_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
_TEXT_SUFFIXES = (".txt", ".normalized.txt", ".lab")


@dataclass(frozen=True, slots=True)
class Clip:
    """A recording and its words. `audio` is a file, or the bytes of one; `id` is unique in its source.

    `voice` is the recording in whose voice it should be, `description` what it should sound like and `emotion` the feeling that
    it should express, where the source says so. `control` names what is wrong with the clip, where something is.
    """

    id: str
    text: str
    language: str
    audio: Path | bytes
    voice: Voice | None = None
    description: str = ""
    emotion: str = ""
    control: str = ""


class ClipSource(Protocol):
    """Clips in a fixed order, each read when it is asked for."""

    @property
    def ids(self) -> Sequence[str]:
        """What makes two sources the same: the ids in order."""

    def __getitem__(self, index: int) -> Clip:
        """Raises: DataError if the row has no audio or no text."""


@dataclass(frozen=True)
class _Rows:
    """Clips of rows that were read before."""

    ids: tuple[str, ...]
    read: Callable[[int], Clip]

    def __getitem__(self, index: int) -> Clip:
        return self.read(index)


def open_clips(
    source: str, *, split: str = "train", audio_column: str = "audio", text_column: str = "text", language: str = "en"
) -> ClipSource:
    """Opens what `source` names.

    - a `.jsonl` file: rows with `audio` (a file, relative to the manifest), `text`, optionally `id`, `language`,
      `prompt_audio` (a file too, the wanted voice), `prompt_text` (its words), `description`, `emotion` and `control`;
    - a folder with `metadata.jsonl` or `metadata.csv`: rows with `file_name` and `text` (or `transcription`);
    - a folder of audio files, each with a text file of the same name beside it (`.txt`, `.normalized.txt`, `.lab`);
    - a folder or file of parquet, a folder that `datasets` saved, or a name on the Hugging Face Hub: `audio_column` and
      `text_column` of `split`.

    Raises: DataError if there is nothing to read there; MissingDependency if it needs `datasets`.
    """
    path = Path(source).expanduser()
    if path.suffix == ".jsonl":
        return _from_rows(path, _json_rows(path), "audio", text_column, language)
    if path.is_dir():
        for name, read in (("metadata.jsonl", _json_rows), ("metadata.csv", _csv_rows)):
            if (path / name).is_file():
                rows = read(path / name)
                column = next((key for key in (text_column, "transcription") if rows and key in rows[0]), text_column)
                return _from_rows(path / name, rows, "file_name", column, language)
        if files := sorted(file for file in path.rglob("*") if file.suffix.lower() in _AUDIO_SUFFIXES):
            return _from_folder(path, files, language)
    elif path.suffix != ".parquet" and (path.exists() or source.startswith((".", "/", "~"))):
        found = "is neither a manifest (.jsonl) nor a folder nor parquet" if path.exists() else "does not exist"
        raise DataError(f"{source} {found}")
    return _from_dataset(source, path, split, audio_column, text_column, language)


def _json_rows(path: Path) -> list[dict[str, Any]]:
    if not path.is_file():
        raise DataError(f"there is no manifest {path}")
    rows, broken = read_json_lines(path)
    if broken:
        raise DataError(f"{broken} lines of {path} hold no JSON object; mend or remove them")
    return rows


def _csv_rows(path: Path) -> list[dict[str, Any]]:
    return list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8-sig"))))


def _from_rows(
    manifest: Path, rows: Sequence[Mapping[str, Any]], audio_key: str, text_key: str, language: str
) -> ClipSource:
    if not rows:
        raise DataError(f"{manifest} has no rows")
    for number, row in enumerate(rows, start=1):
        absent = [key for key in (audio_key, text_key) if not isinstance(row.get(key), str) or not row[key].strip()]
        if absent:
            raise DataError(f"row {number} of {manifest} has no {' and no '.join(absent)}; it has {', '.join(row)}")
        if wrong := [key for key in _OPTIONAL if not isinstance(row.get(key) or "", str)]:
            raise DataError(f"row {number} of {manifest}: {' and '.join(wrong)} must be a string")
        recording = row.get("prompt_audio")
        if recording and (fault := find_audio_fault(manifest.parent / recording)):
            raise DataError(f"row {number} of {manifest}: prompt_audio: {fault}")

    def read(index: int) -> Clip:
        row = rows[index]
        return Clip(
            ids[index],
            row[text_key].strip(),
            row.get("language") or language,
            manifest.parent / row[audio_key],
            _voice(manifest, row),
            *(row.get(key) or "" for key in ("description", "emotion", "control")),
        )

    ids = _unique(manifest, [str(row.get("id") or row[audio_key]) for row in rows])
    return _Rows(ids, read)


def _voice(manifest: Path, row: Mapping[str, Any]) -> Voice | None:
    """The voice that measures compare with; it has no codes, because nothing speaks in it here."""
    if not row.get("prompt_audio"):
        return None
    recording = manifest.parent / row["prompt_audio"]
    return Voice(str(recording), row.get("prompt_text") or "", np.zeros((0, 1), np.int64), recording)


def _from_folder(folder: Path, files: Sequence[Path], language: str) -> ClipSource:
    texts: list[Path] = []
    for file in files:
        beside = [file.with_suffix(suffix) for suffix in _TEXT_SUFFIXES]
        text = next((candidate for candidate in beside if candidate.is_file()), None)
        if text is None:
            raise DataError(
                f"{file} has no text beside it ({', '.join(candidate.name for candidate in beside)}), and {folder} has no "
                "metadata.jsonl or metadata.csv"
            )
        texts.append(text)

    def read(index: int) -> Clip:
        words = " ".join(texts[index].read_text(encoding="utf-8").split())
        if not words:
            raise DataError(f"{texts[index]} is empty")
        return Clip(ids[index], words, language, files[index])

    ids = _unique(folder, [file.relative_to(folder).as_posix() for file in files])
    return _Rows(ids, read)


def _from_dataset(
    source: str, path: Path, split: str, audio_column: str, text_column: str, language: str
) -> ClipSource:
    rows = _open_dataset(source, path, split)
    missing = [column for column in (audio_column, text_column) if column not in rows.column_names]
    if missing:
        raise DataError(f"{source} has no column {' and no '.join(missing)}; it has {', '.join(rows.column_names)}")
    from datasets import Audio as AudioFeature

    rows = rows.cast_column(audio_column, AudioFeature(decode=False))

    def read(index: int) -> Clip:
        row = rows[index]
        text, audio = row[text_column], row[audio_column]
        if not isinstance(text, str) or not text.strip() or not audio or not (audio["bytes"] or audio["path"]):
            raise DataError(f"row {index} of {source} has no audio or no text")
        return Clip(ids[index], text.strip(), row.get("language") or language, audio["bytes"] or Path(audio["path"]))

    if "id" in rows.column_names:
        ids = _unique(source, [str(name) for name in rows["id"]])
    else:
        ids = tuple(f"{split}-{index}" for index in range(len(rows)))
    return _Rows(ids, read)


def _open_dataset(source: str, path: Path, split: str) -> Any:
    try:
        import datasets
    except ImportError as error:
        raise MissingDependency.naming("datasets", "data") from error
    try:
        if path.is_file() or (path.is_dir() and any(path.rglob("*.parquet"))):
            files = [str(path)] if path.is_file() else sorted(map(str, path.rglob("*.parquet")))
            return datasets.load_dataset("parquet", data_files=files, split="train")
        if path.is_dir() and not any(path.iterdir()):
            raise DataError(f"{source} is an empty folder")
        if path.is_dir():
            found: Any = datasets.load_from_disk(str(path))
            return found[split] if isinstance(found, datasets.DatasetDict) else found
        if not _HUB_NAME.fullmatch(source):
            raise DataError(
                f"there is no file or folder {source}; a dataset on the Hugging Face Hub is named owner/name"
            )
        return datasets.load_dataset(source, split=split)
    except (OSError, ValueError, KeyError, ConnectionError) as error:
        raise DataError(
            f"{source} is no folder, manifest or parquet file, and cannot be opened as a dataset (split {split!r}): {error}"
        ) from error


def _unique(source: object, ids: Sequence[str]) -> tuple[str, ...]:
    seen: set[str] = set()
    for name in ids:
        if name in seen:
            raise DataError(f"two clips of {source} have the id {name!r}")
        seen.add(name)
    return tuple(ids)
