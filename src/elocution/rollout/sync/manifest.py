"""What a version's folder must hold, tensor by tensor, and whether it does."""

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from elocution.errors import CheckpointError

__all__ = [
    "MANIFEST",
    "FileSignature",
    "Manifest",
    "TensorEntry",
    "describe_tensor",
    "file_digest",
    "fingerprint",
    "fingerprint_of_state",
    "read_manifest",
    "read_tensors",
    "signature_of",
    "verify_version",
    "write_manifest",
]

MANIFEST = "sync.json"
_FORMAT = 1


class FileSignature(NamedTuple):
    """Tells whether a file, followed through links, is still the one that was read, without reading it again."""

    device: int
    inode: int
    size: int
    mtime_ns: int


@dataclass(frozen=True)
class TensorEntry:
    """A tensor as it lies in `file`, empty if it was sent and not written: torch's name of its type, its shape, the SHA-256 of its bytes."""

    file: str
    dtype: str
    shape: tuple[int, ...]
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """All tensors of a version by name, and the SHA-256 of every other file, made from what should be written."""

    version: int
    strategy: str
    tensors: Mapping[str, TensorEntry]
    files: Mapping[str, str]

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.tensors)


def describe_tensor(tensor: Tensor, file: str) -> TensorEntry:
    """The entry of `tensor`, to be written into `file`; reads all of it."""
    flat = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    digest = hashlib.sha256(flat.numpy().data).hexdigest()
    return TensorEntry(file, str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), digest)


def fingerprint(tensors: Mapping[str, TensorEntry]) -> str:
    """One digest of names, types, shapes and contents, however they are spread over files."""
    digest = hashlib.sha256()
    for name, entry in sorted(tensors.items()):
        digest.update(f"{name} {entry.dtype} {list(entry.shape)} {entry.sha256}\n".encode())
    return digest.hexdigest()


def fingerprint_of_state(state: Mapping[str, Tensor], manifest: Manifest) -> str:
    """The fingerprint of tensors that were loaded from `manifest`'s files, perhaps into a wider type.

    Tensors are narrowed to the type of the file again, which is exact; one that `state` lacks is left out.
    """
    found = {
        name: describe_tensor(state[name].to(getattr(torch, entry.dtype)), entry.file)
        for name, entry in manifest.tensors.items()
        if name in state
    }
    return fingerprint(found)


def file_digest(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def signature_of(path: Path) -> FileSignature:
    """The signature of what `path` points to."""
    status = path.stat()
    return FileSignature(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Writes it as the folder's `sync.json`."""
    content = {"format": _FORMAT, "fingerprint": manifest.fingerprint, **asdict(manifest)}
    (folder / MANIFEST).write_text(json.dumps(content, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def read_manifest(folder: Path) -> Manifest:
    """Raises: CheckpointError if it is missing, damaged or of another format."""
    path = folder / MANIFEST
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["format"] != _FORMAT:
            raise CheckpointError(f"{path} has format {content['format']}, this version reads format {_FORMAT}")
        tensors = {
            name: TensorEntry(entry["file"], entry["dtype"], tuple(entry["shape"]), entry["sha256"])
            for name, entry in content["tensors"].items()
        }
        return Manifest(content["version"], content["strategy"], tensors, content["files"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{folder} is no synced version: cannot read {path.name}: {error}") from error


def read_tensors(path: Path, names: Collection[str] | None = None) -> dict[str, Tensor]:
    """The tensors of a safetensors file, or those called `names`; they lie in the file until they are touched.

    Raises: CheckpointError if the file is missing or truncated.
    """
    try:
        with safe_open(path, framework="pt") as stream:
            return {name: stream.get_tensor(name) for name in stream.keys() if names is None or name in names}  # noqa: SIM118  # no mapping
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"cannot read {path}: {error}") from error


def verify_version(folder: Path, *, read_before: Iterable[FileSignature] = ()) -> Manifest:
    """The manifest of `folder`, after everything in the folder was read back and compared with it.

    Files that still have a signature in `read_before` were read by this process already: names, types and shapes in them
    are compared, their contents are not read again.

    Raises: CheckpointError naming the first file or tensor that is missing, too many, or not what was written.
    """
    manifest = read_manifest(folder)
    known = frozenset(read_before)
    by_file: dict[str, set[str]] = {}
    for name, entry in manifest.tensors.items():
        if entry.file:
            by_file.setdefault(entry.file, set()).add(name)
    _check_names(folder, "files", {path.name for path in folder.iterdir()}, {MANIFEST, *by_file, *manifest.files})
    for file, names in by_file.items():
        tensors = read_tensors(folder / file)
        _check_names(folder / file, "tensors", set(tensors), names)
        is_known = signature_of(folder / file) in known
        for name, tensor in tensors.items():
            entry = manifest.tensors[name]
            found = (str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape))
            if found != (entry.dtype, entry.shape):
                raise CheckpointError(
                    f"{folder / file}: {name} is {found[0]} {list(found[1])}, not {entry.dtype} {list(entry.shape)}"
                )
            if not is_known and describe_tensor(tensor, file).sha256 != entry.sha256:
                raise CheckpointError(f"{folder / file}: the content of {name} is not what was written")
    for file, digest in manifest.files.items():
        if signature_of(folder / file) not in known and file_digest(folder / file) != digest:
            raise CheckpointError(f"{folder / file} is not what was written")
    return manifest


def _check_names(place: Path, kind: str, found: set[str], expected: set[str]) -> None:
    if found != expected:
        missing, extra = sorted(expected - found), sorted(found - expected)
        raise CheckpointError(f"{place}: {kind} missing: {missing[:5]}, too many: {extra[:5]}")
