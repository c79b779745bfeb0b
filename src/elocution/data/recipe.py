"""Speech metadata (JSON lines with `text`) -> the train and test parquet of the CosyVoice2 recipe on veRL."""

import io
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from elocution.data.prompt_files import read_rows
from elocution.data.prompts import BadRow
from elocution.data.recipe_rows import OWN_COLUMNS, RecipeSettings, RecipeText, check_text_row, recipe_row
from elocution.errors import DataError, MissingDependency, StorageError
from elocution.files import reporting_disk_errors, write_bytes_atomically, write_text_atomically

__all__ = ["Prepared", "SplitSettings", "copy_to_url", "prepare_recipe"]


@dataclass(frozen=True)
class SplitSettings:
    """Which usable rows go where. `published` takes the first for training and the last for testing; `seeded` draws both."""

    kind: Literal["published", "seeded"] = "published"
    train: int = 80_000
    test: int = 100
    seed: int = 0

    def __post_init__(self) -> None:
        if self.train < 1 or self.test < 1:
            raise DataError(f"both splits need a row at least, got --train {self.train} and --test {self.test}")


@dataclass(frozen=True)
class Prepared:
    """What was written. `shared` training rows had a text of the test split and were left out; `bad` are all bad rows."""

    train: int
    test: int
    shared: int
    bad: tuple[BadRow, ...]


def prepare_recipe(
    source: Path,
    output: Path,
    split: SplitSettings,
    settings: RecipeSettings,
    *,
    test_source: Path | None = None,
    carry: bool = True,
) -> Prepared:
    """Writes `train.parquet`, `test.parquet` and `rejected.jsonl` into `output`.

    With `test_source`, its last rows are the test split and `source` is for training alone. `carry` keeps the other columns
    of the source.

    Raises: DataError if a file cannot be read, too few rows are usable, or a carried column holds values of several types;
    MissingDependency without pyarrow; StorageError.
    """
    try:
        import pyarrow
    except ImportError as error:
        raise MissingDependency.naming("pyarrow", "data") from error
    rows, bad = _usable(source, settings)
    if test_source is None:
        train, test = _divide(rows, split, source)
    else:
        others, more = _usable(test_source, settings)
        bad += more
        if not rows or not others:
            raise DataError(f"{source if not rows else test_source} has no usable row; see the list of bad ones")
        train, test = rows[: split.train], others[-split.test :]
    tested = {row.text for row in test}
    kept = [row for row in train if row.text not in tested]
    if not kept:
        raise DataError(f"every training row of {source} has a text of the test split; give more rows")
    name = f"{source}_{test_source or source}"
    with reporting_disk_errors(output):
        output.mkdir(parents=True, exist_ok=True)
    for part, chosen in (("train", kept), ("test", test)):
        table = [recipe_row(row, part, index, name, settings) for index, row in enumerate(chosen)]
        if not carry:
            table = [{key: row[key] for key in OWN_COLUMNS} for row in table]
        _write(output / f"{part}.parquet", table, pyarrow)
    listed = [json.dumps({"file": str(row.path), "line": row.line, "reason": row.reason}) for row in bad]
    write_text_atomically(output / "rejected.jsonl", "".join(f"{line}\n" for line in listed))
    return Prepared(len(kept), len(test), len(train) - len(kept), tuple(bad))


def copy_to_url(folder: Path, url: str) -> None:
    """Copies the files that `prepare_recipe` wrote to `url`, any that fsspec knows, and compares their sizes there.

    Raises: MissingDependency without fsspec or what it needs for the URL; StorageError if a copy fails.
    """
    try:
        import fsspec
    except ImportError as error:
        raise MissingDependency.naming("fsspec", "data") from error
    try:
        system, root = fsspec.core.url_to_fs(url)
        system.makedirs(root, exist_ok=True)
        for name in ("train.parquet", "test.parquet", "rejected.jsonl"):
            target = f"{root.rstrip('/')}/{name}"
            system.put_file(str(folder / name), target)
            if system.size(target) != (folder / name).stat().st_size:
                raise StorageError(f"{target} has another size than {folder / name}; copy it again")
    except ImportError as error:
        raise MissingDependency(f"cannot copy to {url}: {error}") from error
    except StorageError:
        raise
    except Exception as error:  # each file system fails in its own way
        raise StorageError(f"cannot copy {folder} to {url}: {type(error).__name__}: {error}") from error


def _usable(source: Path, settings: RecipeSettings) -> tuple[list[RecipeText], list[BadRow]]:
    if source.suffix == ".parquet" or source.is_dir():
        raise DataError(f"{source} must be JSON lines with `text`")
    rows, bad = [], []
    for raw in read_rows(source):
        found = raw.content if isinstance(raw.content, str) else check_text_row(raw.content, settings)
        if isinstance(found, str):
            bad.append(BadRow(raw.path, raw.number, found))
        else:
            rows.append(found)
    return rows, bad


def _divide(
    rows: Sequence[RecipeText], split: SplitSettings, source: Path
) -> tuple[Sequence[RecipeText], Sequence[RecipeText]]:
    if len(rows) <= split.test:
        raise DataError(
            f"{source} has {len(rows)} usable rows, no more than the {split.test} of the test split; lower --test, or see the "
            "list of bad rows"
        )
    if split.kind == "seeded":
        rows = random.Random(split.seed).sample(rows, len(rows))
    last = len(rows) - split.test
    return rows[: min(split.train, last)], rows[last:]


def _write(path: Path, rows: Sequence[dict[str, Any]], pyarrow: Any) -> None:
    import pyarrow.parquet as parquet

    buffer = io.BytesIO()
    try:
        parquet.write_table(pyarrow.Table.from_pylist(_even(rows)), buffer)
    except pyarrow.ArrowException as error:
        raise DataError(
            f"a column of the source cannot be carried along: {error}; leave the source's columns out with --no-carry"
        ) from error
    write_bytes_atomically(path, buffer.getvalue())


def _even(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same columns in every row, ours last; pyarrow takes them from the first."""
    names = list(dict.fromkeys(name for row in rows for name in row if name not in OWN_COLUMNS))
    return [{name: row.get(name) for name in (*names, *OWN_COLUMNS)} for row in rows]
