"""Prompts of unequal length as one grid."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["pad_prompts", "positions_of"]


def pad_prompts(prompts: Sequence[NDArray[np.int64]]) -> tuple[Tensor, Tensor]:
    """Prompts padded on the left with id 0, and the mask of what is real, on the CPU. Shapes: [P, L] each."""
    length = max(len(prompt) for prompt in prompts)
    ids = torch.zeros(len(prompts), length, dtype=torch.long, device="cpu")
    mask = torch.zeros(len(prompts), length, dtype=torch.long, device="cpu")
    for row, prompt in enumerate(prompts):
        ids[row, length - len(prompt) :] = torch.from_numpy(prompt)
        mask[row, length - len(prompt) :] = 1
    return ids, mask


def positions_of(mask: Tensor) -> Tensor:
    """Positions counted from the first real id of each row. Shapes: [B, L] -> [B, L]."""
    return (mask.cumsum(dim=1) - 1).clamp_min(0)
