"""What a version's folder holds: a whole checkpoint, the merged weights that an adapter changes, or the adapter."""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Literal, Protocol

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from elocution.errors import CheckpointError, ConfigError, EngineError
from elocution.policies.lora import (
    AdapterBase,
    adapted_weights,
    adapter_tensors,
    has_adapter,
    merged_names,
    merged_state_dict,
    save_adapter,
)
from elocution.rollout.sync.layout import BaseCheckpoint, link_file, read_base_checkpoint, split_base, split_shards
from elocution.rollout.sync.manifest import (
    FileSignature,
    Manifest,
    TensorEntry,
    describe_tensor,
    file_digest,
)

__all__ = ["AdapterPayload", "Payload", "SentPayload", "SyncDtype", "WeightsPayload"]

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
        untie: bool = False,
        max_shard_bytes: int = 5 << 30,
    ) -> None:
        """Reads all of `base`, and writes into the folder `shared` what its files hold besides what changes.

        `dtype` is the type of what is written: that of the base's tensor with "base". Integers keep theirs. With `untie`,
        a tied tensor that the base has under one name is there under all, for engines that take each by its own.

        Raises: ConfigError if the model has no adapter and `delta` is asked for, or its weights are not in fp32;
        CheckpointError if the base lacks tensors of the model or has them in other shapes.
        """
        if strategy == "delta" and not has_adapter(model):
            raise ConfigError("rollout.sync.strategy = 'delta' needs an adapter (model.lora.rank > 0); use 'full'")
        _check_precision(model)
        self._model, self._strategy = model, strategy
        self._base = read_base_checkpoint(base)
        ties = _ties(model, self._base)
        changed = set(adapted_weights(model) if strategy == "delta" else merged_names(model)) - ties.keys()
        _check_known(changed, self._base)
        if untie and strategy == "full":
            changed |= ties.keys()
        copies = ties if untie and strategy == "delta" else {}
        self._tensors = dict(self._base.tensors) | {copy: self._base.tensors[name] for copy, name in ties.items()}
        shapes = {name: entry.shape for name, entry in self._tensors.items() if name in changed}
        self._dtypes = {name: _target_dtype(self._tensors[name], dtype) for name in shapes}
        self._linked = split_base(self._base, changed, copies, shared)
        self._shards = split_shards(shapes, self._dtypes, max_shard_bytes)

    @property
    def read_before(self) -> Iterable[FileSignature]:
        others = (self._base.signatures[name] for name in self._base.others)
        return (*(linked.signature for linked in self._linked), *others)

    def write(self, folder: Path, version: int) -> Manifest:
        count = len(self._linked) + len(self._shards)
        files = [f"model-{number:05d}-of-{count:05d}.safetensors" for number in range(1, count + 1)]
        tensors: dict[str, TensorEntry] = {}
        for file, linked in zip(files, self._linked, strict=False):
            link_file(linked.path, folder / file)
            for name in linked.names:
                entry = self._tensors[name]
                tensors[name] = TensorEntry(file, entry.dtype, entry.shape, entry.sha256)
        for file, names in zip(files[len(self._linked) :], self._shards, strict=True):
            shard = self._shard(names)
            tensors |= {name: describe_tensor(tensor, file) for name, tensor in shard.items()}
            save_file(shard, folder / file, metadata={"format": "pt"})
        for name in self._base.others:
            link_file(self._base.path / name, folder / name)
        (folder / _INDEX).write_text(_index_of(tensors), encoding="utf-8")
        others = {**self._base.others, _INDEX: file_digest(folder / _INDEX)}
        return Manifest(version, self._strategy, tensors, others)

    def _shard(self, names: tuple[str, ...]) -> dict[str, Tensor]:
        merged = merged_state_dict(self._model, names)
        shard = {}
        for name in names:
            tensor, base = merged[name], self._tensors[name]
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


class SentPayload:
    """Tensors that stay in memory and are sent: those that an adapter changes, merged, or all.

    A folder has the record of what they follow from, the adapter or the tensors, so that nothing is merged but to be sent.
    """

    adapted_modules = None
    read_before = ()

    def __init__(
        self, model: nn.Module, *, dtype: Literal["fp32", "bf16"] = "fp32", max_bucket_bytes: int = 1 << 30
    ) -> None:
        """`dtype` is the type of what is sent. Raises: ConfigError if the weights are not in fp32."""
        _check_precision(model)
        self._model = model
        tensors = merged_state_dict(model, adapted_weights(model) or _untied_names(model))
        shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
        self._dtypes = {
            name: _DTYPES[dtype] if tensor.is_floating_point() else tensor.dtype for name, tensor in tensors.items()
        }
        self._buckets = split_shards(shapes, self._dtypes, max_bucket_bytes)
        self._described: tuple[int, ...] = ()

    def write(self, folder: Path, version: int) -> Manifest:
        self._described = self._weights_state()
        buckets = [adapter_tensors(self._model)] if has_adapter(self._model) else self.buckets()
        tensors = {name: describe_tensor(tensor, "") for bucket in buckets for name, tensor in bucket.items()}
        return Manifest(version, "collective", tensors, {})

    def buckets(self) -> Iterator[Mapping[str, Tensor]]:
        """The tensors, where the model has them. Raises: EngineError if they have changed since they were described."""
        for names in self._buckets:
            if self._weights_state() != self._described:
                raise EngineError("the weights have changed since they were published: they cannot be sent again")
            merged = merged_state_dict(self._model, names)
            yield {name: merged[name].detach().to(self._dtypes[name]).contiguous() for name in names}

    def _weights_state(self) -> tuple[int, ...]:
        """Torch counts the changes of each tensor in place."""
        return tuple(parameter._version for parameter in self._model.parameters())


def _untied_names(model: nn.Module) -> list[str]:
    """The names of all tensors; of tied ones the first, which stands for all."""
    names: dict[int, str] = {}
    for name, tensor in model.state_dict().items():
        names.setdefault(tensor.data_ptr(), name)
    return list(names.values())


def _ties(model: nn.Module, base: BaseCheckpoint) -> dict[str, str]:
    """Names that the base lacks because the tensor is tied to another, with the name that it has there."""
    state = model.state_dict()
    places = {tensor.data_ptr(): name for name, tensor in state.items() if name in base.tensors}
    return {
        name: places[tensor.data_ptr()]
        for name, tensor in state.items()
        if name not in base.tensors and tensor.data_ptr() in places
    }


def _check_known(names: Iterable[str], base: BaseCheckpoint) -> None:
    """Raises: CheckpointError if the base lacks one of `names`."""
    if unknown := sorted(set(names) - base.tensors.keys()):
        raise CheckpointError(f"{base.path} has no tensors called {', '.join(unknown[:5])}; is it the model's base?")


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
