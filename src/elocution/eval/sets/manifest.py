"""Prompt files as evaluation sets: the rows that training reads, every bad one an error."""

from pathlib import Path

from elocution.data.prompt_files import read_rows
from elocution.data.prompt_rows import check_row
from elocution.errors import DataError
from elocution.eval.sets.base import EvalItem, EvalSet, build_set, name_some

__all__ = ["read_manifest"]


def read_manifest(path: Path, *, language: str | None = None) -> EvalSet:
    """The rows of a JSONL or parquet file; rows may be of any language, and those that name none are of `language`.

    Raises: DataError if the file cannot be read, a row is bad, or a recording is missing.
    """
    items: list[EvalItem] = []
    bad: list[str] = []
    for raw in read_rows(path):
        if isinstance(raw.content, str):
            bad.append(f"{raw.path}:{raw.number}: {raw.content}")
            continue
        named = raw.content.get("language")
        spoken = named if isinstance(named, str) else language or "en"
        row = check_row(raw.content, f"{raw.path.stem}-{raw.number}", [spoken], raw.path.parent)
        if isinstance(row, str):
            bad.append(f"{raw.path}:{raw.number}: {row}")
            continue
        voice = (row.voice.text, row.voice.audio, row.voice.codes) if row.voice else ("", None, None)
        items.append(EvalItem(row.id, row.text, row.language, *voice))
    if bad:
        raise DataError(f"{len(bad)} bad row{'s' if len(bad) > 1 else ''} in {path}: {name_some(bad)}")
    return build_set(path.stem, "manifest", path, items)
