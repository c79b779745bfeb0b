"""One optimiser step: micro-batches in, updated weights out, exact token-mean whatever the cut."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from elocution.errors import DeadParameterError, NonFiniteError, RatioMismatch
from elocution.grpo.correction import Correction, bounded_weights, importance_weights
from elocution.grpo.diagnostics import logprob_gaps, max_ratio_deviation, non_finite_cells
from elocution.grpo.kl import KL_ESTIMATES, kl_k3
from elocution.grpo.losses import LOSSES, LossSettings
from elocution.grpo.masking import masked
from elocution.grpo.weights import Aggregation, StepTotals, cell_weights
from elocution.policies.base import Policy, Reference, require_states
from elocution.train.batch import LearnerBatch

__all__ = ["EngineMismatch", "Learner", "LearnerSettings", "UpdateStats"]

# On-policy ratios may differ from 1 by what a precision loses between two ways to compute the same sum: on the tiny
# checkpoint at most 1e-5 in fp32 and 0.1 in bf16.
_RATIO_TOLERANCES = {torch.bfloat16: 0.5}
_RATIO_TOLERANCE = 1e-3


@dataclass(frozen=True)
class LearnerSettings:
    """The numbers of one update; see `AlgorithmConfig` and `TrainConfig` for their meaning."""

    temperature: float = 1.0
    loss: str = "clipped"
    bounds: LossSettings = LossSettings()
    aggregation: Aggregation = "token"
    channel_weights: tuple[float, ...] | None = None
    fixed_length: int | None = None
    whole_stops: bool = False
    kl_coef: float = 0.0
    kl_estimate: str = "k3"
    entropy_coef: float = 0.0
    correction: Correction | None = None
    correction_low: float = 0.0
    correction_high: float = 2.0
    max_grad_norm: float = 1.0
    activation_checkpointing: bool = False


@dataclass(frozen=True)
class EngineMismatch:
    """How far the engine's log-probs of a step are from the learner's before its first update, and what that costs.

    Units: nats. `bounded_share` is that of the importance weights that were truncated or masked.
    """

    mean: float
    max: float
    bounded_share: float


@dataclass(frozen=True)
class UpdateStats:
    """Token means over one optimiser step, in nats where they are log-quantities.

    `kl` is the estimate k3, `exact_kl` the KL itself, which is known only if `kl_estimate` is "exact".
    `mismatch` is known where importance weights are used: else the learner takes the engine's log-probs for its own.
    """

    policy_loss: float
    kl: float
    exact_kl: float | None
    entropy: float
    clipped_share: float
    max_ratio_deviation: float
    grad_norm: float
    num_tokens: int
    mismatch: EngineMismatch | None = None


@dataclass(frozen=True)
class _Scored:
    """A micro-batch under policy and reference. Shapes: [B, T, C] each; `exact_kl` only if it is the estimate."""

    logprobs: Tensor
    entropy: Tensor
    ref_logprobs: Tensor
    exact_kl: Tensor | None


class Learner:
    """Moves `policy` with `optimizer`; `reference` is the frozen model that KL is measured against.

    `settings` may be replaced between updates, as schedules want.

    Raises: ConfigError if the settings ask for the exact KL and policy or reference cannot give it.
    """

    def __init__(
        self, policy: Policy, reference: Reference, optimizer: torch.optim.Optimizer, settings: LearnerSettings
    ) -> None:
        self._policy, self._reference, self._optimizer = policy, reference, optimizer
        self.settings = settings
        self._has_updated = False
        if settings.kl_estimate == "exact":
            for part in (policy, reference):
                require_states(part)

    @torch.no_grad()
    def logprobs(self, batch: LearnerBatch) -> Tensor:
        """The policy's log-probs of the completions. Shapes: [B, T, C]."""
        return self._policy.logprobs(batch.policy, temperature=self.settings.temperature)[0]

    def update(self, batches: Sequence[LearnerBatch], *, on_policy: bool) -> UpdateStats:
        """One optimiser step over `batches`, whose cut does not change the gradient.

        Raises: RatioMismatch if `on_policy` and a ratio is not 1; NonFiniteError if loss or gradient is not finite;
        DeadParameterError if in the first update a parameter gets no gradient. In all cases the weights and the
        optimiser are as before.
        """
        # transformers recomputes activations in training mode only; without dropout the modes are the same else.
        self._policy.model.train(self.settings.activation_checkpointing)
        try:
            return self._update(batches, on_policy)
        finally:
            self._policy.model.eval()

    def _update(self, batches: Sequence[LearnerBatch], on_policy: bool) -> UpdateStats:
        settings = self.settings
        totals = StepTotals.of(
            (batch.policy.completion_mask for batch in batches), (batch.finished for batch in batches)
        )
        num_tokens = sum(totals.tokens)
        self._optimizer.zero_grad(set_to_none=True)
        sums = {"loss": 0.0, "kl": 0.0, "exact_kl": 0.0, "entropy": 0.0, "clipped": 0.0}
        deviation = 0.0
        mismatch = self._mismatch(batches, num_tokens)
        for batch in batches:
            mask = batch.policy.completion_mask
            scored = self._score(batch)
            logprobs, entropy, ref_logprobs = scored.logprobs, scored.entropy, scored.ref_logprobs
            weights = cell_weights(
                mask,
                batch.finished,
                totals,
                aggregation=settings.aggregation,
                channel_weights=settings.channel_weights,
                fixed_length=settings.fixed_length,
                whole_stops=settings.whole_stops,
            ).to(logprobs.dtype)
            cells = LOSSES[settings.loss](logprobs, batch.old_logprobs, batch.advantages, mask, settings.bounds)
            per_cell = cells.loss
            if settings.correction:
                per_cell = per_cell * importance_weights(
                    batch.old_logprobs,
                    batch.rollout_logprobs,
                    mask,
                    correction=settings.correction,
                    low=settings.correction_low,
                    high=settings.correction_high,
                )
            loss = (weights * per_cell).sum()
            total = loss
            if settings.kl_coef:
                estimate = scored.exact_kl
                if estimate is None:
                    estimate = KL_ESTIMATES[settings.kl_estimate](logprobs, ref_logprobs, mask)
                total = total + settings.kl_coef * (weights * estimate).sum()
            if settings.entropy_coef:
                total = total - settings.entropy_coef * (weights * masked(entropy, mask)).sum()
            kl = kl_k3(logprobs.detach(), ref_logprobs, mask).sum() / num_tokens
            if not math.isfinite(total.item()):
                raise NonFiniteError(f"the loss is {total.item()}{_where(logprobs, batch)}; no weight was changed")
            total.backward()
            sums["loss"] += loss.item()
            sums["kl"] += kl.item()
            if scored.exact_kl is not None:
                sums["exact_kl"] += scored.exact_kl.detach().sum().item() / num_tokens
            sums["entropy"] += entropy.detach()[mask].sum().item() / num_tokens
            sums["clipped"] += cells.bounded.sum().item() / num_tokens
            deviation = max(deviation, max_ratio_deviation(logprobs, batch.old_logprobs, mask).item())
        tolerance = _RATIO_TOLERANCES.get(self._policy.compute_dtype, _RATIO_TOLERANCE)
        if on_policy and deviation > tolerance:
            self._optimizer.zero_grad(set_to_none=True)
            raise RatioMismatch(
                f"before any update a ratio of training to sampling probability is off 1 by {deviation:.2e} "
                f"(bound {tolerance:g}): the engine does not sample from the policy being trained"
            )
        norm = nn.utils.clip_grad_norm_(self._policy.model.parameters(), settings.max_grad_norm).item()
        if not math.isfinite(norm):
            self._optimizer.zero_grad(set_to_none=True)
            raise NonFiniteError(f"the gradient norm is {norm}; no weight was changed")
        if not self._has_updated:
            _check_gradients(self._policy.model)
        self._optimizer.step()
        self._has_updated = True
        return UpdateStats(
            policy_loss=sums["loss"],
            kl=sums["kl"],
            exact_kl=sums["exact_kl"] if settings.kl_estimate == "exact" else None,
            entropy=sums["entropy"],
            clipped_share=sums["clipped"],
            max_ratio_deviation=deviation,
            grad_norm=norm,
            num_tokens=num_tokens,
            mismatch=mismatch,
        )

    def _score(self, batch: LearnerBatch) -> _Scored:
        """One forward pass of the policy and one of the reference, which gets no gradient."""
        settings, cells = self.settings, batch.policy
        temperature, entropy_grad = settings.temperature, settings.entropy_coef > 0
        if settings.kl_estimate != "exact":
            logprobs, entropy = self._policy.logprobs(cells, temperature=temperature, entropy_grad=entropy_grad)
            with torch.no_grad():
                ref_logprobs, _ = self._reference.logprobs(cells, temperature=temperature)
            return _Scored(logprobs, entropy, ref_logprobs, None)
        states = require_states(self._policy).states(cells)
        logprobs, entropy = states.logprobs(temperature=temperature, entropy_grad=entropy_grad)
        with torch.no_grad():
            reference = require_states(self._reference).states(cells)
            ref_logprobs, _ = reference.logprobs(temperature=temperature)
        with torch.set_grad_enabled(settings.kl_coef > 0):
            exact_kl = states.exact_kl(reference, temperature=temperature)
        return _Scored(logprobs, entropy, ref_logprobs, exact_kl)

    def _mismatch(self, batches: Sequence[LearnerBatch], num_tokens: int) -> EngineMismatch | None:
        settings = self.settings
        if settings.correction is None:
            return None
        total = largest = 0.0
        bounded = 0
        for batch in batches:
            mask = batch.policy.completion_mask
            gaps = logprob_gaps(batch.old_logprobs, batch.rollout_logprobs, mask)
            total += gaps.sum().item()
            largest = max(largest, gaps.max().item())
            outside = bounded_weights(
                batch.old_logprobs,
                batch.rollout_logprobs,
                mask,
                correction=settings.correction,
                low=settings.correction_low,
                high=settings.correction_high,
            )
            bounded += int(outside.sum())
        return EngineMismatch(mean=total / num_tokens, max=largest, bounded_share=bounded / num_tokens)


def _check_gradients(model: nn.Module) -> None:
    """Raises: DeadParameterError naming the trainable parameters whose gradient is zero or absent.

    The first factor of a LoRA pair is left out: its gradient is zero while the second factor is.
    """
    dead = [
        name
        for name, parameter in model.named_parameters()
        if parameter.requires_grad
        and ".lora_A." not in name
        and (parameter.grad is None or not bool(parameter.grad.any()))
    ]
    if dead:
        shown = ", ".join(dead[:5]) + (f" and {len(dead) - 5} more" if len(dead) > 5 else "")
        raise DeadParameterError(
            f"{len(dead)} parameters that should be trained get no gradient: {shown}. If the loss does not depend on "
            "them, give them learning rate 0 by a rule in train.rules"
        )


def _where(logprobs: Tensor, batch: LearnerBatch) -> str:
    """The first id whose log-prob is not finite, in words; empty if all are."""
    cells = non_finite_cells(logprobs.detach(), batch.policy.completion_mask)
    if not len(cells):
        return ""
    row, position, channel = cells[0].tolist()
    token = int(batch.policy.completion_ids[row, position, channel])
    return f": the log-prob of id {token} at position {position} of completion {row} is not finite"
