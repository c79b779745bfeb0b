"""Prompts and completions of unequal length as one grid."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["completion_lengths", "pad_completions", "pad_prompts"]


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


def pad_completions(completions: Sequence[NDArray[np.int64]]) -> tuple[Tensor, Tensor]:
    """Completions padded on the right with the first row of the first, and the mask of their cells, on the CPU.

    Shapes: [T, C] each -> [B, T, C] each.
    """
    shape = (len(completions), max(map(len, completions)), completions[0].shape[1])
    ids = torch.from_numpy(completions[0][0]).expand(shape).clone()  # every channel has ids of its own
    mask = torch.zeros(shape, dtype=torch.bool, device="cpu")
    for row, completion in enumerate(completions):
        ids[row, : len(completion)] = torch.from_numpy(completion)
        mask[row, : len(completion)] = True
    return ids, mask


def completion_lengths(mask: Tensor) -> Tensor:
    """Positions up to the last that has an unmasked cell. Shapes: [B, T, C] -> [B]."""
    places = torch.arange(1, mask.shape[1] + 1, device=mask.device)
    return (mask.any(dim=-1) * places).amax(dim=1)
