"""Policy losses by cell, to be minimised. Pure functions of tensors; knows nothing of speech.

A cell is one id drawn: position t of channel c of completion b. How cells are averaged is `grpo.weights`' concern.
Masked cells may hold anything, NaN included; their loss is 0 and gets no gradient.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from elocution.grpo.masking import check_cells, masked

__all__ = [
    "LOSSES",
    "CellLosses",
    "LossSettings",
    "cispo_loss",
    "clipped_loss",
    "gspo_loss",
    "sapo_loss",
    "weighted_cross_entropy",
]

_LARGEST_LOG_RATIO = 20.0  # nats; beyond it a gate is closed to the last bit


@dataclass(frozen=True)
class LossSettings:
    """Bounds of the ratio: 1 - `clip_low` to 1 + `clip_high`; `dual_clip` bounds it for A < 0, if given; `tau_positive`
    and `tau_negative` are SAPO's temperatures.
    """

    clip_low: float = 0.2
    clip_high: float = 0.28
    dual_clip: float | None = None
    tau_positive: float = 1.0
    tau_negative: float = 1.05


@dataclass(frozen=True)
class CellLosses:
    """Shapes: `loss` [B, T, C]; `bounded` [B, T, C] bool: a bound decides about the cell's gradient."""

    loss: Tensor
    bounded: Tensor


def clipped_loss(
    logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, mask: Tensor, settings: LossSettings
) -> CellLosses:
    """`-min(r A, clip(r) A)`, and for A < 0 not above `-dual_clip A`; r = exp(logprob - old logprob).

    A bounded cell has no gradient, even if its ratio overflows.
    Shapes: `logprobs`, `old_logprobs`, `mask` [B, T, C]; `advantages` [B]. Raises: ValueError if they disagree.
    Source: PPO (arXiv:1707.06347) eq. 7; two bounds: DAPO (arXiv:2503.14476) eq. 8; dual clip: arXiv:1912.09729 eq. 5.
    """
    log_ratio, weights = _log_ratio(logprobs, old_logprobs, advantages, mask)
    return _clip(log_ratio, weights, mask, settings)


def gspo_loss(
    logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, mask: Tensor, settings: LossSettings
) -> CellLosses:
    """As `clipped_loss`, with one ratio for a completion: exp of the mean of its cells' log-ratios.

    Each cell carries the ratio's value and its own gradient, so that any averaging of cells is meaningful; under
    the mean over a completion's cells the gradient is the sequence objective's.
    Source: GSPO (arXiv:2507.18071) eq. 5 and 13 (GSPO-token).
    """
    log_ratio, weights = _log_ratio(logprobs, old_logprobs, advantages, mask)
    count = mask.sum(dim=(1, 2), keepdim=True).clamp_min(1)
    mean = log_ratio.detach().sum(dim=(1, 2), keepdim=True) / count
    return _clip(
        torch.where(mask, mean + log_ratio - log_ratio.detach(), torch.zeros_like(log_ratio)), weights, mask, settings
    )


def cispo_loss(
    logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, mask: Tensor, settings: LossSettings
) -> CellLosses:
    """`-clip(r) A logprob` with no gradient through clip(r): bounded cells go on learning.

    `clip_low` = 1 leaves out the lower bound. Source: CISPO (arXiv:2506.13585) eq. 4.
    """
    log_ratio, weights = _log_ratio(logprobs, old_logprobs, advantages, mask)
    ratio = log_ratio.detach().exp()
    bounded = ratio.clamp(1 - settings.clip_low, 1 + settings.clip_high)
    loss = -bounded * weights * masked(logprobs, mask)
    return CellLosses(torch.where(mask, loss, torch.zeros_like(loss)), mask & (bounded != ratio))


def sapo_loss(
    logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, mask: Tensor, settings: LossSettings
) -> CellLosses:
    """`-4 / tau sigmoid(tau (r - 1)) A`, tau by the sign of A: the gradient fades where a clip would cut it.

    Source: SAPO (arXiv:2511.20347) eq. 6.
    """
    log_ratio, weights = _log_ratio(logprobs, old_logprobs, advantages, mask)
    ratio = log_ratio.clamp_max(_LARGEST_LOG_RATIO).exp()
    tau = torch.where(weights > 0, settings.tau_positive, settings.tau_negative)
    gate = torch.sigmoid(tau * (ratio - 1)) * 4 / tau
    return CellLosses(torch.where(mask, -gate * weights, torch.zeros_like(gate)), torch.zeros_like(mask))


def weighted_cross_entropy(
    logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, mask: Tensor, settings: LossSettings
) -> CellLosses:
    """`-A logprob`: no ratio and no bound, so right for the first update after sampling only.

    Source: the published MOSS-TTS recipe; REINFORCE with a group baseline.
    """
    _, weights = _log_ratio(logprobs, old_logprobs, advantages, mask)
    loss = -weights * masked(logprobs, mask)
    return CellLosses(torch.where(mask, loss, torch.zeros_like(loss)), torch.zeros_like(mask))


LossFunction = Callable[[Tensor, Tensor, Tensor, Tensor, LossSettings], CellLosses]

LOSSES: dict[str, LossFunction] = {
    "clipped": clipped_loss,
    "gspo": gspo_loss,
    "cispo": cispo_loss,
    "sapo": sapo_loss,
    "weighted_ce": weighted_cross_entropy,
}


def _log_ratio(logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Log-ratios, 0 in masked cells, and the advantages as [B, 1, 1]."""
    check_cells(mask, logprobs, old_logprobs)
    if advantages.shape != mask.shape[:1]:
        raise ValueError(f"advantages have shape {tuple(advantages.shape)}, expected [{mask.shape[0]}]")
    log_ratio = masked(logprobs, mask) - masked(old_logprobs, mask)
    return log_ratio, advantages.to(log_ratio.dtype)[:, None, None]


def _clip(log_ratio: Tensor, weights: Tensor, mask: Tensor, settings: LossSettings) -> CellLosses:
    with torch.no_grad():
        ratio = log_ratio.exp()
        low, high = 1 - settings.clip_low, 1 + settings.clip_high
        held = ((ratio > high) & (weights >= 0)) | ((ratio < low) & (weights <= 0))
        held_objective = ratio.clamp(low, high) * weights
        if settings.dual_clip is not None:
            far = (ratio > settings.dual_clip) & (weights < 0)
            held_objective = torch.where(far, settings.dual_clip * weights, held_objective)
            held = held | far
    # min(r A, clip(r) A), written as a choice: a ratio that overflows where it is held must not reach the gradient, which
    # min() would make 0 * inf.
    free_objective = log_ratio.masked_fill(held, 0.0).exp() * weights
    objective = torch.where(held, held_objective, free_objective)
    return CellLosses(torch.where(mask, -objective, torch.zeros_like(objective)), mask & held & (weights != 0))
