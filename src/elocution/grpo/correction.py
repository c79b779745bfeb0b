"""Importance weights for ids that were drawn by another policy than the one whose log-probs the loss starts from.

Between sampling and learning lie stale weights and engines that compute in another way. The weight of a cell is the
probability under which the trainer would have drawn it over that under which it was drawn, kept from running away.
"""

from typing import Literal, get_args

import torch
from torch import Tensor

from elocution.grpo.masking import check_cells, masked

__all__ = ["Correction", "bounded_weights", "importance_weights"]

Correction = Literal["token_truncate", "token_mask", "sequence_truncate", "sequence_mask"]


def importance_weights(
    old_logprobs: Tensor, rollout_logprobs: Tensor, mask: Tensor, *, correction: Correction, low: float, high: float
) -> Tensor:
    """Weights without gradient, 0 in masked cells. Shapes: [B, T, C] each.

    `old_logprobs` are the trainer's before the step's first update, `rollout_logprobs` the engine's. A token's ratio
    is exp(old - rollout); a sequence's is that of the sums over its cells, the same for all of them. `truncate` bounds
    it from above by `high`; `mask` sets it to 0 outside `low` to `high`.

    Raises: ValueError if the shapes disagree, `correction` is unknown or the bounds are not 0 <= low < high.
    Source: truncated importance sampling, Ionides 2008; its use against engine mismatch: Yao et al. 2025, "Your
    efficient RL framework secretly brings you off-policy RL training"; the modes of TRL's `vllm_importance_sampling_mode`.
    """
    _check(old_logprobs, rollout_logprobs, mask, correction, low, high)
    ratio = _ratio(old_logprobs, rollout_logprobs, mask, correction)
    if correction.endswith("truncate"):
        ratio = ratio.clamp_max(high)
    else:
        ratio = torch.where((ratio < low) | (ratio > high), torch.zeros_like(ratio), ratio)
    return torch.where(mask, ratio, torch.zeros_like(ratio))


def bounded_weights(
    old_logprobs: Tensor, rollout_logprobs: Tensor, mask: Tensor, *, correction: Correction, low: float, high: float
) -> Tensor:
    """Where `importance_weights` changes a ratio, by truncation or by masking. Shapes: [B, T, C] each; returns bool.

    Raises: as `importance_weights`.
    """
    _check(old_logprobs, rollout_logprobs, mask, correction, low, high)
    ratio = _ratio(old_logprobs, rollout_logprobs, mask, correction)
    outside = ratio > high
    return mask & (outside if correction.endswith("truncate") else outside | (ratio < low))


def _check(
    old_logprobs: Tensor, rollout_logprobs: Tensor, mask: Tensor, correction: Correction, low: float, high: float
) -> None:
    check_cells(mask, old_logprobs, rollout_logprobs)
    if correction not in get_args(Correction):
        raise ValueError(f"correction must be one of {get_args(Correction)}, got {correction!r}")
    if not 0 <= low < high:
        raise ValueError(f"importance weights need 0 <= low < high, got {low} and {high}")


@torch.no_grad()
def _ratio(old_logprobs: Tensor, rollout_logprobs: Tensor, mask: Tensor, correction: Correction) -> Tensor:
    log_ratio = masked(old_logprobs, mask) - masked(rollout_logprobs, mask)
    if correction.startswith("sequence"):
        log_ratio = log_ratio.sum(dim=(1, 2), keepdim=True).expand_as(log_ratio)
    return log_ratio.exp()
