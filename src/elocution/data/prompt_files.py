"""Rows of prompt files in their order: JSON lines, or parquet in one file or a folder of shards."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elocution.data.prompt_rows import COLUMNS
from elocution.errors import DataError, MissingDependency

__all__ = ["RawRow", "read_rows"]

_ROWS_AT_ONCE = 1024
_RECIPE = {"reward_model", "extra_info"}  # where the CosyVoice2 recipe on veRL keeps text and index
_CODE = re.compile(r"<\|s_([0-9]+)\|>")


@dataclass(frozen=True)
class RawRow:
    """What a file holds at line or row `number`, counted from 1: an object, or the reason why it is none."""

    path: Path
    number: int
    content: dict[str, Any] | str


def read_rows(path: Path) -> Iterator[RawRow]:
    """The rows of a JSONL file, of a parquet file, or of the parquet files of a folder by name.

    Of parquet only the columns that prompts may have are read, since published sets have others; a value that is null is
    as if it were not there. Parquet of the CosyVoice2 recipe is read by its own columns.

    Raises: DataError if a file cannot be read; MissingDependency if it is parquet and pyarrow is not there.
    """
    shards = sorted(path.glob("*.parquet")) if path.is_dir() else []
    if shards or path.suffix == ".parquet":
        for shard in shards or [path]:
            yield from _table_rows(shard)
    else:
        yield from _json_rows(path)


def _json_rows(path: Path) -> Iterator[RawRow]:
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise DataError(f"cannot read the prompt file {path}: {error.strerror}") from error
    for number, line in enumerate(raw.removeprefix(b"\xef\xbb\xbf").splitlines(), start=1):
        if line.strip():
            yield RawRow(path, number, _parse(line))


def _parse(line: bytes) -> dict[str, Any] | str:
    try:
        # Given bytes, json would guess other encodings too.
        row: Any = json.loads(line.decode("utf-8"), object_pairs_hook=_unrepeated)
    except UnicodeDecodeError:
        return "not UTF-8 text"
    except json.JSONDecodeError as error:
        return f"malformed JSON (column {error.colno}): {error.msg}"
    except (ValueError, RecursionError) as error:  # a repeated key, thousands of digits or of nested brackets
        return f"unusable JSON: {error}"
    return row if isinstance(row, dict) else f"expected a JSON object, found {type(row).__name__}"


def _unrepeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    keys = [key for key, _ in pairs]
    if repeated := sorted({key for key in keys if keys.count(key) > 1}):
        raise ValueError(f"{', '.join(map(repr, repeated))} is given more than once")
    return dict(pairs)


def _table_rows(path: Path) -> Iterator[RawRow]:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise MissingDependency.naming("pyarrow", "data") from error
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            present = file.schema_arrow.names
            is_recipe = "text" not in present and set(present) >= _RECIPE
            if "text" not in present and not is_recipe:
                raise DataError(f"{path} has no column text; it has {', '.join(present)}")
            columns = [*_RECIPE] if is_recipe else [column for column in COLUMNS if column in present]
            number = 0
            for batch in file.iter_batches(batch_size=_ROWS_AT_ONCE, columns=columns):
                for row in batch.to_pylist():
                    number += 1
                    yield RawRow(path, number, _recipe_row(row, path.stem) if is_recipe else _flat(row))
    except (OSError, pyarrow.ArrowException) as error:
        raise DataError(f"cannot read the prompt file {path}: {error}") from error


def _recipe_row(row: dict[str, Any], stem: str) -> dict[str, Any] | str:
    extra, reward = row["extra_info"] or {}, row["reward_model"] or {}
    if not isinstance(extra, dict) or not isinstance(reward, dict):
        return "extra_info and reward_model must hold fields by name"
    if extra.get("prefix_speech_str"):
        return "the answer begins with the row's own speech, of which no voice can be made; prepare it without prefixes"
    found = {"text": reward.get("ground_truth"), "id": f"{extra.get('split', stem)}-{extra.get('index')}"}
    if extra.get("prompt_text"):
        found["prompt_text"] = extra["prompt_text"]
        found["prompt_codes"] = [int(code) for code in _CODE.findall(extra.get("prompt_speech_str") or "")]
    return {key: value for key, value in found.items() if value is not None}


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """A row without nulls; a recording in a table is a file's name, or its bytes and perhaps a name."""
    given = {key: value for key, value in row.items() if value is not None}
    recording = given.get("prompt_audio")
    if isinstance(recording, dict):
        given["prompt_audio"] = recording.get("bytes") or recording.get("path")
    return {key: value for key, value in given.items() if value is not None}
