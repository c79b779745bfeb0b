"""Policy losses and KL estimates on grids of cells. Pure functions of tensors; knows nothing of speech.

A cell is one id drawn: position t of channel c of completion b. `num_tokens` is the number of unmasked cells of the
whole optimiser step over all micro-batches and ranks, so that cutting the step differently changes no gradient.
"""

import torch
from torch import Tensor

__all__ = ["clipped_policy_loss", "kl_k3"]


def clipped_policy_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    completion_mask: Tensor,
    *,
    clip_low: float,
    clip_high: float,
    num_tokens: int,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Clipped policy-gradient loss of one micro-batch, to be minimised, and two counts that add up over micro-batches.

    Shapes: `logprobs`, `old_logprobs`, `completion_mask` [B, T, C]; `advantages` [B].
    Units: log-probabilities in nats; the returned loss is per cell of the step. `clipped_tokens` counts the cells
    whose ratio is held at a bound, `tokens` the unmasked cells.
    Masked cells may hold anything, NaN included; they get zero gradient, and so do cells held at a bound.

    Raises: ValueError if the shapes disagree, the mask is not bool or `num_tokens` < 1.
    Source: PPO (arXiv:1707.06347) eq. 7; separate bounds and the token mean from DAPO (arXiv:2503.14476) eq. 8.
    """
    _check(logprobs, old_logprobs, completion_mask, num_tokens)
    if advantages.shape != logprobs.shape[:1]:
        raise ValueError(f"advantages have shape {tuple(advantages.shape)}, expected [{logprobs.shape[0]}]")
    log_ratio = _masked(logprobs, completion_mask) - _masked(old_logprobs, completion_mask)
    weights = advantages.to(log_ratio.dtype)[:, None, None]
    with torch.no_grad():
        ratio = log_ratio.exp()
        above, below = ratio > 1 + clip_high, ratio < 1 - clip_low
        held = (above & (weights >= 0)) | (below & (weights <= 0))  # never a masked cell: its ratio is 1
        held_objective = ratio.clamp(1 - clip_low, 1 + clip_high) * weights
    # min(ratio A, clip(ratio) A), written as a choice: a ratio that overflows where it is held must not reach the
    # gradient, which min() would make 0 * inf.
    free_objective = log_ratio.masked_fill(held, 0.0).exp() * weights
    objective = torch.where(held, held_objective, free_objective)
    loss = -torch.where(completion_mask, objective, torch.zeros_like(objective)).sum() / num_tokens
    return loss, {"clipped_tokens": (held & (weights != 0)).sum(), "tokens": completion_mask.sum()}


def kl_k3(logprobs: Tensor, ref_logprobs: Tensor, completion_mask: Tensor, *, num_tokens: int) -> Tensor:
    """Estimate of KL(policy || reference) from the policy's own samples: mean of `exp(d) - d - 1`, d = ref - policy.

    Shapes: [B, T, C] each. Units: nats per cell of the step. Never negative but for rounding. Masked cells may hold anything.

    Raises: ValueError if the shapes disagree, the mask is not bool or `num_tokens` < 1.
    Source: Schulman, "Approximating KL divergence" (2020), estimator k3; GRPO (arXiv:2402.03300) eq. 4.
    """
    _check(logprobs, ref_logprobs, completion_mask, num_tokens)
    difference = _masked(ref_logprobs, completion_mask) - _masked(logprobs, completion_mask)
    return (torch.expm1(difference) - difference).sum() / num_tokens


def _masked(values: Tensor, mask: Tensor) -> Tensor:
    """`values` in fp32 or better with 0 in masked cells, chosen and not multiplied, so that NaN there does no harm."""
    values = values.to(torch.promote_types(values.dtype, torch.float32))
    return torch.where(mask, values, torch.zeros_like(values))


def _check(first: Tensor, second: Tensor, mask: Tensor, num_tokens: int) -> None:
    if not (first.ndim == 3 and first.shape == second.shape == mask.shape):
        raise ValueError(
            f"expected three [B, T, C], got {tuple(first.shape)}, {tuple(second.shape)}, {tuple(mask.shape)}"
        )
    if mask.dtype is not torch.bool:
        raise ValueError(f"the mask must be bool, got {mask.dtype}")
    if num_tokens < 1:
        raise ValueError(f"num_tokens must be at least 1, got {num_tokens}")
