"""The run directory: who may write in it, and where things lie."""

import fcntl
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from elocution.errors import RunDirectoryError
from elocution.files import read_json_lines, reporting_disk_errors, write_text_atomically

__all__ = ["RunDirectory"]

_LOCK = ".lock"


class RunDirectory:
    """A run's folder, locked for one writer. Use as a context manager.

    Opened by a process that is not its writer, it is only read: nothing is locked, and what is to be written is not.

    Raises: RunDirectoryError on entry if the folder holds a run and `resume` is False, if it holds none and
    `resume` is True, or if another process writes in it; StorageError if it cannot be written.
    """

    def __init__(self, path: Path, *, resume: bool, is_writer: bool = True) -> None:
        self.path = path
        self.is_writer = is_writer
        self._resume = resume
        self._lock: IO[str] | None = None
        self._followers: list[Callable[[str, Mapping[str, Any]], None]] = []

    def __enter__(self) -> Self:
        if not self.is_writer:
            return self
        if self.path.exists() and not self.path.is_dir():
            raise RunDirectoryError(f"{self.path} is a file; choose another --output-dir")
        if self._resume and not self.config_path.is_file():
            raise RunDirectoryError(f"cannot resume {self.path}: it holds no run (no {self.config_path.name})")
        if not self._resume and self.path.is_dir() and any(file.name != _LOCK for file in self.path.iterdir()):
            kind = "a run" if self.config_path.is_file() else "other files"
            raise RunDirectoryError(
                f"{self.path} already holds {kind}; continue it with --resume or choose another --output-dir"
            )
        with reporting_disk_errors(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = (self.path / _LOCK).open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self._lock.close()
            raise RunDirectoryError(f"another process is writing the run {self.path}") from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._lock is None:
            return
        if not self.config_path.is_file():  # the run never began: leave the place as it was
            (self.path / _LOCK).unlink(missing_ok=True)
            with suppress(OSError):  # it holds something else
                self.path.rmdir()
        self._lock.close()

    @property
    def config_path(self) -> Path:
        return self.path / "config.toml"

    @property
    def checkpoints_path(self) -> Path:
        return self.path / "checkpoints"

    def follow(self, follower: Callable[[str, Mapping[str, Any]], None]) -> None:
        """Has `follower` called with each file's name and row, once that is written."""
        self._followers.append(follower)

    def append_json(self, name: str, row: dict[str, Any]) -> None:
        """Adds one line to the JSONL file `name`. NaN is refused: what was not measured is null.

        Numbers of other libraries are written as numbers.
        """
        if not self.is_writer:
            return
        line = _json_line(row)
        with reporting_disk_errors(self.path / name), (self.path / name).open("a", encoding="utf-8") as stream:
            stream.write(line)
        for follower in self._followers:
            follower(name, row)

    def read_rows(self, name: str) -> list[dict[str, Any]]:
        """The rows of the JSONL file `name`, none if it is not there yet; a line cut short is left out."""
        return read_json_lines(self.path / name)[0]

    def keep_rows(self, name: str, is_kept: Callable[[dict[str, Any]], bool]) -> None:
        """Rewrites the JSONL file `name` with the rows that `is_kept` accepts; a line cut short is dropped."""
        path = self.path / name
        if self.is_writer and path.is_file():
            kept = [_json_line(row) for row in read_json_lines(path)[0] if is_kept(row)]
            write_text_atomically(path, "".join(kept))


def _json_line(row: dict[str, Any]) -> str:
    return json.dumps(row, ensure_ascii=False, allow_nan=False, default=float) + "\n"
