"""The folder of versions: each appears whole or not at all, and the last proven one stays until a newer is proven.

    ROOT/v000012/      a version, never changed once it has its name; `v000012.1` if that name was taken
    ROOT/proven.json   which version an engine was last proven to have

A version is written under another name, every file and the folder flushed to the disk, renamed, and read back. Only after
an engine is proven to have it does `proven.json` name it, and only after that are other versions deleted. So wherever a
process ends, `proven.json` names a whole version or is not there yet. One process at a time may write.
"""

import json
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from elocution.errors import CheckpointError
from elocution.files import reporting_disk_errors, write_text_atomically
from elocution.rollout.sync.manifest import FileSignature, Manifest, verify_version, write_manifest

__all__ = ["ProvenVersion", "VersionStore", "WrittenVersion", "flush_folder"]

logger = logging.getLogger(__name__)

_PROVEN = "proven.json"


@dataclass(frozen=True)
class WrittenVersion:
    """A version on the disk, read back. `bytes_written` leaves out what is linked. Units: seconds, bytes."""

    path: Path
    manifest: Manifest
    bytes_written: int
    write_s: float
    verify_s: float


@dataclass(frozen=True)
class ProvenVersion:
    """The version that an engine was last proven to have."""

    path: Path
    manifest: Manifest


class VersionStore:
    """The versions below `root`, which is made if need be; what an interrupted write left there is deleted."""

    def __init__(self, root: Path) -> None:
        """Raises: StorageError if the folder cannot be made or written."""
        self.root = root.absolute()
        with reporting_disk_errors(self.root):
            self.root.mkdir(parents=True, exist_ok=True)
            for partial in self.root.glob(".v*.partial"):
                shutil.rmtree(partial)
            for file in self.root.glob(".partial.*"):  # of `proven.json`
                file.unlink()

    def write(
        self, version: int, fill: Callable[[Path, int], Manifest], *, read_before: Iterable[FileSignature] = ()
    ) -> WrittenVersion:
        """A new folder with what `fill` writes into it, on the disk and read back; `fill` says what that must be.

        `read_before` is as in `verify_version`.

        Raises: StorageError if the disk is full or read-only; CheckpointError if what is read back is not what `fill`
        said. In both cases no folder is left behind.
        """
        started = time.perf_counter()
        path = self._free_path(version)
        partial = path.with_name(f".{path.name}.partial")
        with reporting_disk_errors(path):
            try:
                partial.mkdir()
                manifest = fill(partial, version)
                write_manifest(partial, manifest)
                num_bytes = _flush(partial)
                os.rename(partial, path)
                flush_folder(self.root)
                written = time.perf_counter()
                if verify_version(path, read_before=read_before) != manifest:
                    raise CheckpointError(f"the manifest of {path} is not what was written")
            except BaseException:
                shutil.rmtree(partial, ignore_errors=True)
                shutil.rmtree(path, ignore_errors=True)
                raise
        return WrittenVersion(path, manifest, num_bytes, written - started, time.perf_counter() - written)

    def mark_proven(self, path: Path) -> None:
        """Makes `path` the version that `last_proven` finds, then deletes the others.

        Raises: StorageError if that cannot be written down.
        """
        write_text_atomically(self.root / _PROVEN, json.dumps({"folder": path.name}) + "\n")
        with reporting_disk_errors(self.root):
            flush_folder(self.root)
        for old in self.root.glob("v*"):
            if old.is_dir() and old != path:
                shutil.rmtree(old, onerror=_report)

    def last_proven(self) -> ProvenVersion | None:
        """The version that an engine was last proven to have, read back in full, or None if there never was one.

        Raises: CheckpointError if it is damaged.
        """
        record = self.root / _PROVEN
        if not record.exists():
            return None
        try:
            path = self.root / json.loads(record.read_text(encoding="utf-8"))["folder"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CheckpointError(f"cannot read {record}: {error}") from error
        return ProvenVersion(path, verify_version(path))

    def _free_path(self, version: int) -> Path:
        name = "rehearsal" if version < 0 else f"{version:06d}"
        path, attempt = self.root / f"v{name}", 0
        while path.exists():
            attempt += 1
            path = self.root / f"v{name}.{attempt}"
        return path


def flush_folder(folder: Path) -> None:
    """Makes the names in `folder` last through a loss of power."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _flush(folder: Path) -> int:
    """Flushes every file that has no other name, and the folder; returns the bytes in them."""
    total = 0
    for path in sorted(folder.iterdir()):
        status = path.lstat()
        if path.is_symlink() or status.st_nlink > 1:
            continue
        with path.open("rb+") as stream:
            os.fsync(stream.fileno())
        total += status.st_size
    flush_folder(folder)
    return total


def _report(function: object, path: str, error: object) -> None:
    logger.warning("cannot delete %s of an old version: %s", path, error)
