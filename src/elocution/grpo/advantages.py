"""Advantages: how much better a completion is than its siblings. Pure functions; knows nothing of speech."""

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["GroupAdvantages", "group_advantages"]

_NO_SPREAD = 1e-6  # reward units; a group whose rewards differ by no more carries no signal


@dataclass(frozen=True)
class GroupAdvantages:
    """Shapes: `advantages` [P, G], 0 where unscored or without signal; `has_signal` [P]."""

    advantages: Tensor
    has_signal: Tensor


def group_advantages(rewards: Tensor, scored: Tensor, *, std_floor: float) -> GroupAdvantages:
    """`(reward - mean) / max(std, std_floor)` over the scored siblings of each group.

    Shapes: `rewards` [P, G]; `scored` [P, G] bool. Unscored rewards may hold anything, NaN included.
    The deviation is the unbiased one. A group with fewer than two scored siblings or without spread has no signal.

    Raises: ValueError if the shapes disagree or a scored reward is not finite.
    Source: GRPO (arXiv:2402.03300) section 4.1.2; the floor replaces the usual epsilon, see docs/algorithms.md.
    """
    if rewards.ndim != 2 or rewards.shape != scored.shape:
        raise ValueError(f"rewards {tuple(rewards.shape)} and scored {tuple(scored.shape)} must both be [P, G]")
    known = torch.where(scored, rewards, torch.zeros_like(rewards))
    if not bool(torch.isfinite(known).all()):
        raise ValueError("a scored reward is not finite")
    count = scored.sum(dim=1, keepdim=True)
    mean = known.sum(dim=1, keepdim=True) / count.clamp_min(1)
    centred = torch.where(scored, known - mean, torch.zeros_like(known))
    std = (centred.square().sum(dim=1, keepdim=True) / (count - 1).clamp_min(1)).sqrt()
    highest = rewards.masked_fill(~scored, -torch.inf).amax(dim=1)
    lowest = rewards.masked_fill(~scored, torch.inf).amin(dim=1)
    has_signal = (count[:, 0] >= 2) & (highest - lowest > _NO_SPREAD)
    advantages = torch.where(has_signal[:, None], centred / std.clamp_min(std_floor), torch.zeros_like(centred))
    return GroupAdvantages(advantages, has_signal)
