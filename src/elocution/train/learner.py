"""One optimiser step: micro-batches in, updated weights out, exact token-mean whatever the cut."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from elocution.errors import NonFiniteError, RatioMismatch
from elocution.grpo.diagnostics import max_ratio_deviation, non_finite_cells
from elocution.grpo.losses import clipped_policy_loss, kl_k3
from elocution.policies.base import Policy, Reference
from elocution.train.batch import LearnerBatch

__all__ = ["Learner", "LearnerSettings", "UpdateStats"]

# On-policy ratios may differ from 1 by what fp32 loses between two ways to compute the same sum.
RATIO_TOLERANCE = 1e-3


@dataclass(frozen=True)
class LearnerSettings:
    """The numbers of one update; see `AlgorithmConfig` and `TrainConfig` for their meaning."""

    temperature: float
    clip_low: float
    clip_high: float
    kl_coef: float
    max_grad_norm: float


@dataclass(frozen=True)
class UpdateStats:
    """Token means over one optimiser step, in nats where they are log-quantities."""

    policy_loss: float
    kl: float
    entropy: float
    clipped_share: float
    max_ratio_deviation: float
    grad_norm: float
    num_tokens: int


class Learner:
    """Moves `policy` with `optimizer`; `reference` is the frozen model that KL is measured against."""

    def __init__(
        self, policy: Policy, reference: Reference, optimizer: torch.optim.Optimizer, settings: LearnerSettings
    ) -> None:
        self._policy, self._reference, self._optimizer, self._settings = policy, reference, optimizer, settings

    def update(self, batches: Sequence[LearnerBatch], *, on_policy: bool) -> UpdateStats:
        """One optimiser step over `batches`, whose cut does not change the gradient.

        Raises: RatioMismatch if `on_policy` and a ratio is not 1; NonFiniteError if loss or gradient is not finite.
        In both cases the weights and the optimiser are as before.
        """
        settings = self._settings
        num_tokens = sum(batch.num_tokens for batch in batches)
        self._optimizer.zero_grad(set_to_none=True)
        sums = {"loss": 0.0, "kl": 0.0, "entropy": 0.0, "clipped": 0.0}
        deviation = 0.0
        for batch in batches:
            mask = batch.policy.completion_mask
            logprobs, entropy = self._policy.logprobs(batch.policy, temperature=settings.temperature)
            with torch.no_grad():
                ref_logprobs, _ = self._reference.logprobs(batch.policy, temperature=settings.temperature)
            loss, metrics = clipped_policy_loss(
                logprobs,
                batch.old_logprobs,
                batch.advantages,
                mask,
                clip_low=settings.clip_low,
                clip_high=settings.clip_high,
                num_tokens=num_tokens,
            )
            kl = kl_k3(logprobs, ref_logprobs, mask, num_tokens=num_tokens)
            total = loss + settings.kl_coef * kl if settings.kl_coef else loss
            if not math.isfinite(total.item()):
                raise NonFiniteError(f"the loss is {total.item()}{_where(logprobs, batch)}; no weight was changed")
            total.backward()
            sums["loss"] += loss.item()
            sums["kl"] += kl.item()
            sums["entropy"] += entropy[mask].sum().item() / num_tokens
            sums["clipped"] += metrics["clipped_tokens"].item() / num_tokens
            deviation = max(deviation, max_ratio_deviation(logprobs, batch.old_logprobs, mask).item())
        if on_policy and deviation > RATIO_TOLERANCE:
            self._optimizer.zero_grad(set_to_none=True)
            raise RatioMismatch(
                f"before any update a ratio of training to sampling probability is off 1 by {deviation:.2e} "
                f"(bound {RATIO_TOLERANCE:.0e}): the engine does not sample from the policy being trained"
            )
        norm = nn.utils.clip_grad_norm_(self._policy.model.parameters(), settings.max_grad_norm).item()
        if not math.isfinite(norm):
            self._optimizer.zero_grad(set_to_none=True)
            raise NonFiniteError(f"the gradient norm is {norm}; no weight was changed")
        self._optimizer.step()
        return UpdateStats(
            policy_loss=sums["loss"],
            kl=sums["kl"],
            entropy=sums["entropy"],
            clipped_share=sums["clipped"],
            max_ratio_deviation=deviation,
            grad_norm=norm,
            num_tokens=num_tokens,
        )


def _where(logprobs: Tensor, batch: LearnerBatch) -> str:
    """The first id whose log-prob is not finite, in words; empty if all are."""
    cells = non_finite_cells(logprobs.detach(), batch.policy.completion_mask)
    if not len(cells):
        return ""
    row, position, channel = cells[0].tolist()
    token = int(batch.policy.completion_ids[row, position, channel])
    return f": the log-prob of id {token} at position {position} of completion {row} is not finite"
