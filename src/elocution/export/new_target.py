"""Files and folders that appear whole or not at all, and never over something."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from elocution.errors import ExportError
from elocution.files import reporting_disk_errors

__all__ = ["write_new"]

Result = TypeVar("Result")


def write_new(target: Path, write: Callable[[Path], Result]) -> Result:
    """Lets `write` make a file or folder that is called `target` once `write` returns; if it fails, nothing is left.

    Raises: ExportError if `target` exists; StorageError; whatever `write` raises.
    """
    if target.exists():
        raise ExportError(f"{target} is there already; name a new one")
    partial = target.with_name(f".{target.name}.partial")
    with reporting_disk_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        _remove(partial)
        try:
            done = write(partial)
            os.replace(partial, target)
        except BaseException:
            _remove(partial)
            raise
    return done


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
