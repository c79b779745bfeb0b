"""Cells that do not count, without harm from what they hold."""

import torch
from torch import Tensor

__all__ = ["check_cells", "masked"]


def masked(values: Tensor, mask: Tensor) -> Tensor:
    """`values` in fp32 or better with 0 in masked cells, chosen and not multiplied, so that NaN there does no harm."""
    values = values.to(torch.promote_types(values.dtype, torch.float32))
    return torch.where(mask, values, torch.zeros_like(values))


def check_cells(mask: Tensor, *values: Tensor) -> None:
    """Raises: ValueError if `values` are not all [B, T, C] as `mask` is, or the mask is not bool."""
    if mask.ndim != 3 or any(value.shape != mask.shape for value in values):
        raise ValueError(f"expected [B, T, C] everywhere, got {[tuple(value.shape) for value in (*values, mask)]}")
    if mask.dtype is not torch.bool:
        raise ValueError(f"the mask must be bool, got {mask.dtype}")
