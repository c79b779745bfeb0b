"""Checks of a checkpoint's tensors that every model family needs: what was read must be able to compute something."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor

from elocution.errors import CheckpointError

__all__ = ["check_stored", "check_values"]


@dataclass(frozen=True)
class _Stored:
    """A tensor as its file describes it; no value is read."""

    file: Path
    name: str
    dtype: str
    is_float: bool
    shape: tuple[int, ...]


def check_stored(folder: Path, expected: Mapping[str, Tensor]) -> None:
    """Refuses weight files whose tensors have another shape than `expected`, which may be on the meta device, or whose
    values are no floating-point numbers and would be converted unasked.

    Raises: CheckpointError naming the tensor; what the readers of the files raise if they are damaged.
    """
    for stored in _stored(folder):
        if not stored.is_float:
            raise CheckpointError(
                f"the tensor {stored.name} in {stored.file} holds {stored.dtype} values, expected floating-point "
                "numbers; a quantised checkpoint must be converted back first"
            )
        wanted = expected.get(stored.name)
        if wanted is not None and stored.shape != tuple(wanted.shape):
            raise CheckpointError(
                f"the tensor {stored.name} in {stored.file} has shape {list(stored.shape)}, "
                f"but config.json makes it {list(wanted.shape)}; the two do not belong together"
            )


def check_values(folder: Path, tensors: Iterable[tuple[str, Tensor]], *, may_be_zero: bool = False) -> None:
    """Refuses tensors with values that are no finite floats, and unless they may be, weight matrices that are all zero.

    Raises: CheckpointError naming the tensor and `folder`, where it came from.
    """
    for name, tensor in tensors:
        if tensor.numel() == 0 or not tensor.is_floating_point():
            found = f"{tensor.dtype} of shape {list(tensor.shape)}"
            raise CheckpointError(f"the tensor {name} in {folder} is {found}, expected floating-point numbers")
        low, high = torch.aminmax(tensor.detach())  # NaN wins over every number
        if not bool((low.isfinite() & high.isfinite()).all()):
            raise CheckpointError(f"the tensor {name} in {folder} holds values that are not finite; get it again")
        if not may_be_zero and tensor.ndim >= 2 and not low.any() and not high.any():
            raise CheckpointError(f"the tensor {name} in {folder} is all zero, it was never written; get it again")


def _stored(folder: Path) -> Iterator[_Stored]:
    for file in sorted(folder.glob("*model*.safetensors")):
        with safe_open(file, framework="pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118  # no mapping
                part = tensors.get_slice(name)
                dtype = part.get_dtype()
                yield _Stored(file, name, dtype, dtype.startswith(("F", "BF")), tuple(part.get_shape()))
    for file in sorted(folder.glob("pytorch_model*.bin")):
        for name, tensor in torch.load(file, map_location="meta", weights_only=True).items():
            yield _Stored(file, name, str(tensor.dtype), tensor.is_floating_point(), tuple(tensor.shape))
