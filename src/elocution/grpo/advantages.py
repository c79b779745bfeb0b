"""Advantages: how much better a completion is than its siblings. Pure functions; knows nothing of speech."""

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["NO_SPREAD", "GroupAdvantages", "group_advantages"]

NO_SPREAD = 1e-6  # reward units; a group whose rewards differ by no more carries no signal


@dataclass(frozen=True)
class GroupAdvantages:
    """Shapes: `advantages` [P, G], 0 outside the loss; `in_loss` [P, G] bool: scored, in a group with signal;
    `has_signal` [P] bool; `std` [P]: the deviation inside each group before the floor, 0 with fewer than two scores.

    The deviation over a whole batch does not show whether siblings differ; `std` does.
    """

    advantages: Tensor
    in_loss: Tensor
    has_signal: Tensor
    std: Tensor


def group_advantages(rewards: Tensor, scored: Tensor, *, std_floor: float) -> GroupAdvantages:
    """`(reward - mean) / max(std, std_floor)` over the scored siblings of each group.

    Shapes: `rewards` [P, G], floating point; `scored` [P, G] bool. Unscored rewards may hold anything, NaN included.
    The deviation is the unbiased one. A group with fewer than two scored siblings or without spread has no signal.
    No advantage of n scored siblings is larger than (n - 1) / sqrt(n).

    Raises: ValueError if the shapes or types disagree, `std_floor` is not positive, or a scored reward is not finite.
    Source: GRPO (arXiv:2402.03300) section 4.1.2; the floor replaces the usual epsilon, see docs/algorithms.md.
    """
    if rewards.ndim != 2 or rewards.shape != scored.shape or rewards.shape[1] == 0:
        raise ValueError(f"rewards {tuple(rewards.shape)} and scored {tuple(scored.shape)} must both be [P, G], G > 0")
    if not rewards.is_floating_point() or scored.dtype is not torch.bool:
        raise ValueError(f"rewards must be floating point and scored bool, got {rewards.dtype} and {scored.dtype}")
    if not std_floor > 0:
        raise ValueError(f"std_floor must be positive, got {std_floor}")
    known = torch.where(scored, rewards, torch.zeros_like(rewards))
    if not bool(torch.isfinite(known).all()):
        raise ValueError("a scored reward is not finite")
    count = scored.sum(dim=1, keepdim=True)
    mean = known.sum(dim=1, keepdim=True) / count.clamp_min(1)
    centred = torch.where(scored, known - mean, torch.zeros_like(known))
    std = (centred.square().sum(dim=1, keepdim=True) / (count - 1).clamp_min(1)).sqrt()
    highest = rewards.masked_fill(~scored, -torch.inf).amax(dim=1)
    lowest = rewards.masked_fill(~scored, torch.inf).amin(dim=1)
    has_signal = (count[:, 0] >= 2) & (highest - lowest > NO_SPREAD)
    advantages = torch.where(has_signal[:, None], centred / std.clamp_min(std_floor), torch.zeros_like(centred))
    return GroupAdvantages(advantages, scored & has_signal[:, None], has_signal, std[:, 0])
