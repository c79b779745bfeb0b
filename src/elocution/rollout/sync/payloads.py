"""What a version's folder holds: a whole checkpoint, the merged weights that an adapter changes, or the adapter."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal, Protocol

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from elocution.errors import CheckpointError, ConfigError
from elocution.policies.lora import (
    AdapterBase,
    adapted_weights,
    adapter_tensors,
    has_adapter,
    merged_names,
    merged_state_dict,
    save_adapter,
)
from elocution.rollout.sync.layout import BaseCheckpoint, link_file, read_base_checkpoint, split_base, split_groups
from elocution.rollout.sync.manifest import (
    FileSignature,
    Manifest,
    TensorEntry,
    describe_tensor,
    file_digest,
    signature_of,
)

__all__ = ["AdapterPayload", "Payload", "SyncDtype", "WeightsPayload"]

SyncDtype = Literal["fp32", "bf16", "base"]
_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
_INDEX = "model.safetensors.index.json"


class Payload(Protocol):
    """Writes the policy's current weights into a folder in the form of one strategy."""

    @property
    def adapted_modules(self) -> int | None:
        """Layers that an engine must bind the adapter to; None if it is given whole weights."""

    @property
    def read_before(self) -> Iterable[FileSignature]:
        """Signatures of files that versions share and that were read when the payload was made."""

    def write(self, folder: Path, version: int) -> Manifest:
        """Fills the empty `folder`; the manifest is made from the tensors in memory, not from the files."""


class WeightsPayload:
    """A checkpoint in the layout of the base: some tensors written, all else linked to the base's own files.

    `full` writes every tensor that the policy has; `delta` writes the weights that its adapter changes. An adapter is
    folded in: W + (alpha / rank) B A in fp32 from the weights that the policy was loaded with, which training leaves as
    they are, then rounded once to `dtype`. So no version builds on the one before.
    """

    adapted_modules = None

    def __init__(
        self,
        model: nn.Module,
        base: Path,
        *,
        strategy: Literal["full", "delta"],
        shared: Path,
        dtype: SyncDtype = "fp32",
        max_shard_bytes: int = 5 << 30,
    ) -> None:
        """Reads all of `base`, and writes into the folder `shared` what its files hold besides what changes.

        `dtype` is the type of what is written: that of the base's tensor with "base". Integers keep theirs.

        Raises: ConfigError if the model has no adapter and `delta` is asked for, or its weights are not in fp32;
        CheckpointError if the base lacks tensors of the model or has them in other shapes.
        """
        if strategy == "delta" and not has_adapter(model):
            raise ConfigError("rollout.sync.strategy = 'delta' needs an adapter (model.lora.rank > 0); use 'full'")
        _check_precision(model)
        self._model, self._strategy = model, strategy
        self._base = read_base_checkpoint(base)
        changed = _changed_names(model, self._base, strategy)
        self._dtypes = {name: _target_dtype(self._base.tensors[name], dtype) for name in changed}
        self._linked = split_base(self._base, self._dtypes.keys(), shared)
        self._groups = split_groups(self._base, self._dtypes.keys(), self._dtypes, max_shard_bytes)
        self._others = {name: signature_of(self._base.path / name) for name in self._base.others}

    @property
    def read_before(self) -> Iterable[FileSignature]:
        return (*(linked.signature for linked in self._linked), *self._others.values())

    def write(self, folder: Path, version: int) -> Manifest:
        count = len(self._linked) + len(self._groups)
        files = [f"model-{number:05d}-of-{count:05d}.safetensors" for number in range(1, count + 1)]
        tensors: dict[str, TensorEntry] = {}
        for file, linked in zip(files, self._linked, strict=False):
            link_file(linked.path, folder / file)
            for name in linked.names:
                entry = self._base.tensors[name]
                tensors[name] = TensorEntry(file, entry.dtype, entry.shape, entry.sha256)
        for file, group in zip(files[len(self._linked) :], self._groups, strict=True):
            shard = self._shard(group.names)
            tensors |= {name: describe_tensor(tensor, file) for name, tensor in shard.items()}
            save_file(shard, folder / file, metadata={"format": "pt"})
        for name in self._others:
            link_file(self._base.path / name, folder / name)
        (folder / _INDEX).write_text(_index_of(tensors), encoding="utf-8")
        others = {**self._base.others, _INDEX: file_digest(folder / _INDEX)}
        return Manifest(version, self._strategy, tensors, others)

    def _shard(self, names: tuple[str, ...]) -> dict[str, Tensor]:
        merged = merged_state_dict(self._model, names)
        shard = {}
        for name in names:
            tensor, base = merged[name], self._base.tensors[name]
            if tuple(tensor.shape) != base.shape:
                raise CheckpointError(f"{name} has shape {list(tensor.shape)}, in {self._base.path} {list(base.shape)}")
            # A copy where nothing is cast: a file must not hold two tensors that share memory.
            shard[name] = tensor.detach().to("cpu", self._dtypes[name], copy=True).contiguous()
        return shard


class AdapterPayload:
    """The adapter alone, in peft's layout, beside the record of its base."""

    read_before = ()

    def __init__(self, model: nn.Module, base: AdapterBase) -> None:
        """Raises: ConfigError if the model has no adapter."""
        if not has_adapter(model):
            raise ConfigError("rollout.sync.strategy = 'adapter' needs an adapter (model.lora.rank > 0); use 'full'")
        self._model, self._base = model, base

    @property
    def adapted_modules(self) -> int:
        return len(adapted_weights(self._model))

    def write(self, folder: Path, version: int) -> Manifest:
        save_adapter(self._model, str(folder), base=self._base)
        (weights,) = folder.glob("*.safetensors")
        tensors = {n: describe_tensor(tensor, weights.name) for n, tensor in adapter_tensors(self._model).items()}
        files = {path.name: file_digest(path) for path in folder.iterdir() if path != weights}
        return Manifest(version, "adapter", tensors, files)


def _changed_names(model: nn.Module, base: BaseCheckpoint, strategy: str) -> list[str]:
    """Names in the base of the tensors that a version writes.

    Raises: CheckpointError if the model has tensors that the base lacks, and that are tied to none that it has.
    """
    state = model.state_dict()
    names = adapted_weights(model) if strategy == "delta" else merged_names(model)
    known = [name for name in names if name in base.tensors]
    places = {state[name].data_ptr() for name in known if name in state}
    unknown = [
        name
        for name in names
        if name not in base.tensors and (name not in state or state[name].data_ptr() not in places)
    ]
    if unknown:
        raise CheckpointError(f"{base.path} has no tensors called {', '.join(unknown[:5])}; is it the model's base?")
    return known


def _check_precision(model: nn.Module) -> None:
    """Raises: ConfigError if weights are held in less than fp32: the sum with an adapter would be rounded to that."""
    narrow = sorted({str(p.dtype) for p in model.parameters() if p.is_floating_point() and p.dtype.itemsize < 4})
    if narrow:
        raise ConfigError(f"weights to be synced must be held in fp32, the model has {', '.join(narrow)}")


def _target_dtype(entry: TensorEntry, dtype: SyncDtype) -> torch.dtype:
    own: torch.dtype = getattr(torch, entry.dtype)
    return own if dtype == "base" or not own.is_floating_point else _DTYPES[dtype]


def _index_of(tensors: Mapping[str, TensorEntry]) -> str:
    total = sum(
        getattr(torch, entry.dtype).itemsize * int(torch.Size(entry.shape).numel()) for entry in tensors.values()
    )
    weight_map = {name: entry.file for name, entry in sorted(tensors.items())}
    return json.dumps({"metadata": {"total_size": total}, "weight_map": weight_map}, indent=1) + "\n"
