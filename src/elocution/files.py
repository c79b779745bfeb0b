"""Files that are whole or absent, and disk errors that say what to do."""

import errno
import json
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from elocution.errors import StorageError

__all__ = [
    "apply_umask",
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
    """Refuses a `path` that holds something else than a regular file that may be written, a link being followed.

    Raises: StorageError if a folder, device, pipe or protected file is there, or if the path cannot be looked at.
    """
    mode = _mode_of(path)
    if mode is None:
        return
    if not stat.S_ISREG(mode):
        kind = "a folder" if stat.S_ISDIR(mode) else "a device or pipe"
        raise StorageError(f"cannot write {path}: it is {kind}; name a file")
    if not os.access(path, os.W_OK):
        raise StorageError(f"cannot write {path}: the file there is protected against it; choose another place")


def _mode_of(path: Path) -> int | None:
    with reporting_disk_errors(path):
        try:
            return path.stat().st_mode
        except FileNotFoundError:
            return None


def write_bytes_atomically(path: Path, content: bytes) -> None:
    """Replaces `path` by a file that holds `content`; a reader sees the old file or the new, never a part.

    A link stays, and what it points to is replaced. A device is refused: root could put a file in its place. Who may
    read the file is as after `open(path, "wb")`: as before, or for a new file what the umask says.

    Raises: StorageError if the disk is full, the place cannot be written, or `path` is a folder, device or pipe.
    """
    check_replaceable(path)
    old_mode = _mode_of(path)
    with reporting_disk_errors(path):
        path = Path(os.path.realpath(path))
        # A short name: the last part of `path` may already be as long as names can be.
        temporary = path.parent / f".partial.{secrets.token_hex(8)}"
        try:
            with temporary.open("xb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
            if old_mode is not None:
                temporary.chmod(stat.S_IMODE(old_mode))
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def apply_umask(*paths: Path) -> None:
    """Gives new files the mode that `open` would have given; safetensors lets their owner alone read them.

    Raises: StorageError if the folder cannot be written.
    """
    for path in paths:
        with reporting_disk_errors(path):
            probe = path.parent / f".partial.{secrets.token_hex(8)}"
            probe.touch(exist_ok=False)
            mode = stat.S_IMODE(probe.stat().st_mode)
            probe.unlink()
            path.chmod(mode)


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
        except (ValueError, RecursionError):
            row = None
        if isinstance(row, dict):
            rows.append(row)
        else:
            broken += 1
    return rows, broken


def write_text_atomically(path: Path, text: str) -> None:
    """`write_bytes_atomically` for text, in UTF-8."""
    write_bytes_atomically(path, text.encode("utf-8"))
