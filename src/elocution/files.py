"""Files that are whole or absent, and disk errors that say what to do."""

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from elocution.errors import StorageError

__all__ = ["reporting_disk_errors", "write_bytes_atomically", "write_text_atomically"]


@contextmanager
def reporting_disk_errors(path: Path) -> Iterator[None]:
    """Turns a full disk or a missing permission into a StorageError that names `path`."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StorageError(f"no space left on the disk of {path}; free some and try again") from error
        if error.errno in (errno.EACCES, errno.EROFS, errno.EPERM, errno.ENOENT, errno.ENOTDIR):
            raise StorageError(f"cannot write {path}: {error.strerror}; choose another place") from error
        raise


def write_bytes_atomically(path: Path, content: bytes) -> None:
    """Replaces `path` by a file that holds `content`; a reader sees the old file or the new, never a part.

    Raises: StorageError if the disk is full or the place cannot be written.
    """
    with reporting_disk_errors(path):
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
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


def write_text_atomically(path: Path, text: str) -> None:
    """`write_bytes_atomically` for text, in UTF-8."""
    write_bytes_atomically(path, text.encode("utf-8"))
