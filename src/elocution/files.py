"""Files that are whole or absent, and disk errors that say what to do."""

import errno
import json
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from elocution.errors import StorageError

__all__ = [
    "check_replaceable",
    "read_json_lines",
    "reporting_disk_errors",
    "write_bytes_atomically",
    "write_text_atomically",
]


@contextmanager
def reporting_disk_errors(path: Path) -> Iterator[None]:
    """Turns an error of the file system into a StorageError that names `path` and says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StorageError(f"no space left on the disk of {path}; free some and try again") from error
        raise StorageError(f"cannot write {path}: {error.strerror or error}; choose another place") from error


def check_replaceable(path: Path) -> None:
    """Refuses a `path` that holds something else than a regular file, a link being followed.

    Raises: StorageError if a folder, device or pipe is there, or if the path cannot be looked at.
    """
    with reporting_disk_errors(path):
        try:
            mode = path.stat().st_mode
        except FileNotFoundError:
            return
    if not stat.S_ISREG(mode):
        kind = "a folder" if stat.S_ISDIR(mode) else "a device or pipe"
        raise StorageError(f"cannot write {path}: it is {kind}; name a file")


def write_bytes_atomically(path: Path, content: bytes) -> None:
    """Replaces `path` by a file that holds `content`; a reader sees the old file or the new, never a part.

    A link stays, and what it points to is replaced. A device is refused: root could put a file in its place.

    Raises: StorageError if the disk is full, the place cannot be written, or `path` is a folder, device or pipe.
    """
    check_replaceable(path)
    with reporting_disk_errors(path):
        path = Path(os.path.realpath(path))
        # A short prefix: the name alone may already be as long as names can be.
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".partial.")
        try:
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
            os.chmod(temporary, 0o644)
            os.replace(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise


def read_json_lines(path: Path) -> tuple[list[dict[str, Any]], int]:
    """The rows of a JSONL file, none if it is not there, and how many lines hold no row, as one cut short by a crash.

    Lines end with a newline alone: texts may hold what else ends a line in Unicode.
    """
    rows: list[dict[str, Any]] = []
    broken = 0
    for line in path.read_bytes().split(b"\n") if path.is_file() else []:
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        if isinstance(row, dict):
            rows.append(row)
        else:
            broken += 1
    return rows, broken


def write_text_atomically(path: Path, text: str) -> None:
    """`write_bytes_atomically` for text, in UTF-8."""
    write_bytes_atomically(path, text.encode("utf-8"))
