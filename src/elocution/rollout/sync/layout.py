"""A base checkpoint on the disk, and how a version is cut into files: what never changes is linked, the rest written."""

import json
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file

from elocution.errors import CheckpointError
from elocution.files import reporting_disk_errors
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
    "LinkedFile",
    "link_file",
    "read_base_checkpoint",
    "split_base",
    "split_shards",
]

_SINGLE, _INDEX = "model.safetensors", "model.safetensors.index.json"
# Weights in whatever form, and what lists them; every other file of a checkpoint is needed beside the weights.
_WEIGHT_SUFFIXES = {".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".gguf", ".onnx"}


@dataclass(frozen=True)
class BaseCheckpoint:
    """A checkpoint that was read once, all of it.

    `tensors` by name; `others` are the digests of the files beside the weights; `signatures` of all files are those from
    before they were read.
    """

    path: Path
    tensors: Mapping[str, TensorEntry]
    others: Mapping[str, str]
    signatures: Mapping[str, FileSignature]


@dataclass(frozen=True)
class LinkedFile:
    """A file of tensors that no version changes, and its signature from when it was read."""

    path: Path
    names: tuple[str, ...]
    signature: FileSignature


def read_base_checkpoint(path: Path) -> BaseCheckpoint:
    """Reads all tensors of a checkpoint in safetensors files, one file or several with an index.

    Raises: CheckpointError if there are none, or they do not fit their index.
    """
    path = path.absolute()
    signatures = {file.name: signature_of(file) for file in path.iterdir() if file.is_file()} if path.is_dir() else {}
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
    return BaseCheckpoint(path, tensors, others, signatures)


def split_base(
    base: BaseCheckpoint, changed: Collection[str], copies: Mapping[str, str], folder: Path
) -> tuple[LinkedFile, ...]:
    """Files that together hold the tensors that are not `changed`, for every version to link.

    A file of the base that holds none of `changed` is linked itself. What else is not changed is written into `folder`
    once, so that no tensor is in two files; so are `copies`, further names -> names of tensors that are not changed.

    Raises: CheckpointError if the base has changed since it was read; StorageError if `folder` cannot be written.
    """
    by_file: dict[str, list[str]] = {}
    for name, entry in base.tensors.items():
        by_file.setdefault(entry.file, []).append(name)
    linked = []
    for file, names in by_file.items():
        kept = tuple(name for name in names if name not in changed)
        if len(kept) == len(names):
            linked.append(LinkedFile(base.path / file, kept, base.signatures[file]))
        elif kept:
            linked.append(_write_once(base, {name: name for name in kept}, folder / file))
    if copies:
        linked.append(_write_once(base, copies, folder / "copies.safetensors"))
    return tuple(linked)


def split_shards(
    shapes: Mapping[str, tuple[int, ...]], dtypes: Mapping[str, torch.dtype], max_bytes: int
) -> tuple[tuple[str, ...], ...]:
    """The names in their order, cut into files of at most `max_bytes`; a larger tensor has a file of its own."""
    shards: list[list[str]] = []
    room = 0
    for name, shape in shapes.items():
        size = dtypes[name].itemsize * torch.Size(shape).numel()
        if size > room or not shards:
            shards.append([])
            room = max_bytes
        shards[-1].append(name)
        room -= size
    return tuple(map(tuple, shards))


def link_file(source: Path, target: Path) -> None:
    """Makes `target` a second name of what `source` points to, or a link to it where that cannot be."""
    real = source.resolve()
    try:
        os.link(real, target)
    except OSError:  # another file system, or a file of another user: what is wrong beyond that, the link will say
        target.symlink_to(real)


def _write_once(base: BaseCheckpoint, names: Mapping[str, str], path: Path) -> LinkedFile:
    """Writes tensors of the base into `path` under the names that are the keys of `names`, and reads them back."""
    partial = path.with_name(f".{path.name}.partial")
    tensors = {
        name: read_tensors(base.path / base.tensors[source].file, {source})[source] for name, source in names.items()
    }
    with reporting_disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        save_file(tensors, partial, metadata={"format": "pt"})
        with partial.open("rb+") as stream:
            os.fsync(stream.fileno())
        os.replace(partial, path)
        flush_folder(path.parent)
    signature = signature_of(path)
    for name, tensor in read_tensors(path).items():
        if describe_tensor(tensor, path.name).sha256 != base.tensors[names[name]].sha256:
            raise CheckpointError(f"{path}: the content of {name} is not that of {base.path}")
    return LinkedFile(path, tuple(names), signature)


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
