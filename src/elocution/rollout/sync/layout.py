"""A base checkpoint on the disk, and how a version is cut into files: what never changes is linked, the rest written."""

import json
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file

from elocution.errors import CheckpointError
from elocution.rollout.sync.manifest import (
    FileSignature,
    TensorEntry,
    describe_tensor,
    file_digest,
    read_tensors,
    signature_of,
)
from elocution.rollout.sync.store import flush_folder

__all__ = [
    "BaseCheckpoint",
    "FileGroup",
    "LinkedFile",
    "link_file",
    "read_base_checkpoint",
    "split_base",
    "split_groups",
]

_SINGLE, _INDEX = "model.safetensors", "model.safetensors.index.json"
# Weights in whatever form, and what lists them; every other file of a checkpoint is needed beside the weights.
_WEIGHT_SUFFIXES = {".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".gguf", ".onnx"}


@dataclass(frozen=True)
class BaseCheckpoint:
    """A checkpoint whose tensors were all read once. `tensors` by name; `others` are the files beside the weights."""

    path: Path
    tensors: Mapping[str, TensorEntry]
    others: Mapping[str, str]


@dataclass(frozen=True)
class LinkedFile:
    """A file of tensors that no version changes, and its signature when it was read."""

    path: Path
    names: tuple[str, ...]
    signature: FileSignature


@dataclass(frozen=True)
class FileGroup:
    """Tensors that a version writes into one file of its own."""

    names: tuple[str, ...]


def read_base_checkpoint(path: Path) -> BaseCheckpoint:
    """Reads all tensors of a checkpoint in safetensors files, one file or several with an index.

    Raises: CheckpointError if there are none, or they do not fit their index.
    """
    path = path.absolute()
    tensors: dict[str, TensorEntry] = {}
    for file, names in _weight_files(path).items():
        found = read_tensors(path / file)
        if names is not None and set(found) != names:
            raise CheckpointError(
                f"{path / file} does not hold the tensors that {_INDEX} says; both: {sorted(set(found) ^ names)[:5]}"
            )
        tensors |= {name: describe_tensor(tensor, file) for name, tensor in found.items()}
    others = {
        file.name: file_digest(file)
        for file in sorted(path.iterdir())
        if file.is_file() and file.suffix not in _WEIGHT_SUFFIXES and not file.name.endswith(".index.json")
    }
    return BaseCheckpoint(path, tensors, others)


def split_base(base: BaseCheckpoint, changed: Collection[str], folder: Path) -> tuple[LinkedFile, ...]:
    """Files that together hold the tensors that are not `changed`, for every version to link.

    A file of the base that holds none of `changed` is linked itself. What else is not changed is written into `folder`
    once, so that no tensor is in two files.
    """
    by_file: dict[str, list[str]] = {}
    for name, entry in base.tensors.items():
        by_file.setdefault(entry.file, []).append(name)
    linked = []
    for file, names in by_file.items():
        kept = tuple(name for name in names if name not in changed)
        if not kept:
            continue
        source = base.path / file
        if len(kept) < len(names):
            folder.mkdir(parents=True, exist_ok=True)
            source = folder / file
            partial = folder / f".{file}.partial"
            save_file(read_tensors(base.path / file, kept), partial, metadata={"format": "pt"})
            with partial.open("rb+") as stream:
                os.fsync(stream.fileno())
            os.replace(partial, source)
            flush_folder(folder)
        linked.append(LinkedFile(source, kept, signature_of(source)))
    return tuple(linked)


def split_groups(
    base: BaseCheckpoint, names: Collection[str], dtypes: Mapping[str, torch.dtype], max_bytes: int
) -> tuple[FileGroup, ...]:
    """`names` in the order of the base, cut into files of at most `max_bytes`; a larger tensor has a file of its own."""
    groups: list[list[str]] = []
    room = 0
    for name, entry in base.tensors.items():
        if name not in names:
            continue
        size = dtypes[name].itemsize * int(torch.Size(entry.shape).numel())
        if size > room or not groups:
            groups.append([])
            room = max_bytes
        groups[-1].append(name)
        room -= size
    return tuple(FileGroup(tuple(group)) for group in groups)


def link_file(source: Path, target: Path) -> None:
    """Makes `target` a second name of what `source` points to, or a link to it where that cannot be."""
    real = source.resolve()
    try:
        os.link(real, target)
    except OSError:  # another file system, or a file of another user: what is wrong beyond that, the link will say
        target.symlink_to(real)


def _weight_files(path: Path) -> dict[str, set[str] | None]:
    """Names of the files with weights -> the tensors that the index puts into each; None without an index."""
    if (path / _SINGLE).is_file():
        return {_SINGLE: None}
    try:
        weight_map = json.loads((path / _INDEX).read_text(encoding="utf-8"))["weight_map"]
        files: dict[str, set[str] | None] = {file: set() for file in weight_map.values()}
        return {file: {name for name, place in weight_map.items() if place == file} for file in files}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path} has neither {_SINGLE} nor a readable {_INDEX}: {error}") from error
