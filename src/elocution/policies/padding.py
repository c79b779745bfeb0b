"""Prompts of unequal length as one grid."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["completion_lengths", "pad_prompts"]


def pad_prompts(prompts: Sequence[NDArray[np.int64]]) -> tuple[Tensor, Tensor]:
    """Prompts padded on the left with id 0, and the mask of what is real, on the CPU.

    Shapes: [L] or [L, C] each -> [P, L] or [P, L, C], and [P, L].
    """
    length = max(len(prompt) for prompt in prompts)
    ids = torch.zeros(len(prompts), length, *prompts[0].shape[1:], dtype=torch.long, device="cpu")
    mask = torch.zeros(len(prompts), length, dtype=torch.long, device="cpu")
    for row, prompt in enumerate(prompts):
        ids[row, length - len(prompt) :] = torch.from_numpy(prompt)
        mask[row, length - len(prompt) :] = 1
    return ids, mask


def completion_lengths(mask: Tensor) -> Tensor:
    """Positions up to the last that has an unmasked cell. Shapes: [B, T, C] -> [B]."""
    places = torch.arange(1, mask.shape[1] + 1, device=mask.device)
    return (mask.any(dim=-1) * places).amax(dim=1)
