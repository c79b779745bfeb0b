"""Advantages: how much better a completion is than its siblings. Pure functions; knows nothing of speech.

A row is a group, by its place: the same utterance twice in a batch makes two groups that share no statistic.
Groups without signal are left out of the statistics over the batch as they are left out of the loss, so that an
advantage does not depend on how many such groups happened to be drawn beside it.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

__all__ = [
    "ADVANTAGES",
    "AdvantageFunction",
    "GroupAdvantages",
    "dr_grpo_advantages",
    "gdpo_advantages",
    "group_advantages",
    "reinforce_pp_advantages",
    "rloo_advantages",
]

_NO_SPREAD = 1e-6  # reward units (deviations in GDPO's sum); a group that differs by no more carries no signal
_LARGEST = 1e15  # reward units; the squares of larger ones leave the range of float32


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


class AdvantageFunction(Protocol):
    """An estimator of one reward. Shapes and errors as in `group_advantages`."""

    def __call__(self, rewards: Tensor, scored: Tensor, *, std_floor: float) -> GroupAdvantages: ...


def group_advantages(rewards: Tensor, scored: Tensor, *, std_floor: float) -> GroupAdvantages:
    """`(reward - mean) / max(std, std_floor)` over the scored siblings of each group.

    Shapes: `rewards` [P, G], float32 or float64; `scored` [P, G] bool. Unscored rewards may hold anything, NaN included.
    The deviation is the unbiased one. A group with fewer than two scored siblings or without spread has no signal.
    No advantage of n scored siblings is larger than (n - 1) / sqrt(n).

    Raises: ValueError if the shapes or types disagree, `std_floor` is not positive, or a scored reward is not finite
    or larger than 1e15.
    Source: GRPO (arXiv:2402.03300) section 4.1.2; the floor replaces the usual epsilon, see docs/algorithms.md.
    """
    siblings = _compare(rewards, scored, std_floor)
    return _result(siblings, scored, siblings.centred / siblings.std.clamp_min(std_floor))


def dr_grpo_advantages(rewards: Tensor, scored: Tensor, *, std_floor: float) -> GroupAdvantages:
    """`reward - mean` over the scored siblings of each group, in reward units.

    Nothing is divided by a deviation; `std_floor` is checked and otherwise unused.

    Shapes, Raises: as `group_advantages`.
    Source: Dr. GRPO (arXiv:2503.20783), its advantage only; its other half, no division by the length, is the loss's.
    """
    siblings = _compare(rewards, scored, std_floor)
    return _result(siblings, scored, siblings.centred)


def rloo_advantages(rewards: Tensor, scored: Tensor, *, std_floor: float) -> GroupAdvantages:
    """`reward - mean of the other scored siblings`, in reward units: n / (n - 1) times that of `dr_grpo_advantages`.

    Nothing is divided by a deviation; `std_floor` is checked and otherwise unused.

    Shapes, Raises: as `group_advantages`.
    Source: REINFORCE leave-one-out (arXiv:2402.14740).
    """
    siblings = _compare(rewards, scored, std_floor)
    return _result(siblings, scored, siblings.centred * siblings.count / (siblings.count - 1).clamp_min(1))


def reinforce_pp_advantages(rewards: Tensor, scored: Tensor, *, std_floor: float) -> GroupAdvantages:
    """`(reward - mean of the group) / max(deviation of these differences over the batch, std_floor)`.

    The form with baseline of REINFORCE++; the plain one subtracts no group mean. Each completion in the loss counts
    once, whatever its length. The differences of a group sum to 0, so there is no batch mean to subtract.
    The deviation is the unbiased one over the N completions in the loss; no advantage is larger than (N - 1) / sqrt(N).

    Shapes, Raises: as `group_advantages`; `rewards` are the whole optimiser step's.
    Source: REINFORCE++ (arXiv:2501.03262, version 9), "w/ Baseline".
    """
    siblings = _compare(rewards, scored, std_floor)
    count = (scored & siblings.has_signal).sum()
    batch_std = (siblings.centred.square().sum() / (count - 1).clamp_min(1)).sqrt()
    return _result(siblings, scored, siblings.centred / batch_std.clamp_min(std_floor))


def gdpo_advantages(rewards: Tensor, scored: Tensor, weights: Tensor, *, std_floor: float) -> GroupAdvantages:
    """Each reward normalised inside the group, then the weighted sum of them normalised over the batch.

    `reinforce_pp_advantages` of `sum_r w_r (reward_r - mean_r) / max(std_r, std_floor) / sum_r |w_r|`. A reward
    without spread inside a group adds 0 there. Only the weights' proportions matter. A group whose sum has no spread
    has no signal, even if rewards that cancel have. `std` is the deviation of the sum, in deviations.

    Shapes: `rewards` [P, G, R], `scored` [P, G] (a completion is scored by all rewards or by none), `weights` [R].
    Raises: ValueError as `group_advantages`, or if a weight is not finite or all are 0.
    Source: GDPO (arXiv:2601.05242).
    """
    if rewards.ndim != 3 or weights.shape != rewards.shape[2:]:
        raise ValueError(f"rewards {tuple(rewards.shape)} must be [P, G, R] and weights {tuple(weights.shape)} [R]")
    size = weights.to(rewards).abs().sum()
    if not 0 < float(size) < float("inf"):
        raise ValueError(f"weights must be finite and not all 0, got {weights.tolist()}")
    each = [group_advantages(column, scored, std_floor=std_floor).advantages for column in rewards.unbind(dim=2)]
    total = torch.stack(each, dim=2) @ (weights.to(rewards) / size)
    return reinforce_pp_advantages(total, scored, std_floor=std_floor)


ADVANTAGES: dict[str, AdvantageFunction] = {
    "grpo": group_advantages,
    "dr_grpo": dr_grpo_advantages,
    "rloo": rloo_advantages,
    "reinforce_pp": reinforce_pp_advantages,
}
"""The estimators of one reward, by name. `gdpo_advantages` takes several rewards and stands apart."""


@dataclass(frozen=True)
class _Siblings:
    """Shapes: `centred` [P, G], 0 where unscored or in a group without signal; the others [P, 1]."""

    centred: Tensor
    count: Tensor
    std: Tensor
    has_signal: Tensor


def _compare(rewards: Tensor, scored: Tensor, std_floor: float) -> _Siblings:
    _check(rewards, scored, std_floor)
    zeros = torch.zeros_like(rewards)
    count = scored.sum(dim=1, keepdim=True)
    mean = torch.where(scored, rewards, zeros).sum(dim=1, keepdim=True) / count.clamp_min(1)
    centred = torch.where(scored, rewards - mean, zeros)
    std = (centred.square().sum(dim=1, keepdim=True) / (count - 1).clamp_min(1)).sqrt()
    highest = rewards.masked_fill(~scored, -torch.inf).amax(dim=1, keepdim=True)
    lowest = rewards.masked_fill(~scored, torch.inf).amin(dim=1, keepdim=True)
    has_signal = highest - lowest > _NO_SPREAD  # 0 with one score, -inf with none
    return _Siblings(torch.where(has_signal, centred, zeros), count, std, has_signal)


def _result(siblings: _Siblings, scored: Tensor, advantages: Tensor) -> GroupAdvantages:
    return GroupAdvantages(advantages, scored & siblings.has_signal, siblings.has_signal[:, 0], siblings.std[:, 0])


def _check(rewards: Tensor, scored: Tensor, std_floor: float) -> None:
    if rewards.ndim != 2 or rewards.shape != scored.shape or rewards.shape[1] == 0:
        raise ValueError(f"rewards {tuple(rewards.shape)} and scored {tuple(scored.shape)} must both be [P, G], G > 0")
    if rewards.dtype not in (torch.float32, torch.float64) or scored.dtype is not torch.bool:
        raise ValueError(
            f"rewards must be floating point, 32 or 64 bits, and scored bool, got {rewards.dtype} and {scored.dtype}"
        )
    if not std_floor > 0:
        raise ValueError(f"std_floor must be positive, got {std_floor}")
    known = torch.where(scored, rewards, torch.zeros_like(rewards))
    if not bool((known.abs() <= _LARGEST).all()):
        raise ValueError(f"a scored reward is not finite, or is larger than {_LARGEST:g}")
