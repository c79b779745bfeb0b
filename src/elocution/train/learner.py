"""One optimiser step: micro-batches in, updated weights out, exact token-mean whatever the cut."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeVar

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
from elocution.train.batch import LearnerBatch, filler_batch
from elocution.train.sharding import ShardedModels, local_part, whole
from elocution.train.world import ALONE, World, failing_together

__all__ = ["EngineMismatch", "Learner", "LearnerSettings", "UpdateStats"]

T = TypeVar("T")

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

    @classmethod
    def over(cls, parts: "Sequence[EngineMismatch | None]") -> "EngineMismatch | None":
        """That of a step from what each process adds to its means; None if no process has one."""
        known = [part for part in parts if part is not None]
        if not known:
            return None
        return cls(
            mean=math.fsum(part.mean for part in known),
            max=max(part.max for part in known),
            bounded_share=math.fsum(part.bounded_share for part in known),
        )


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


class _Scored(NamedTuple):
    """A micro-batch under policy and reference. Shapes: [B, T, C] each; `exact_kl` only if it is the estimate."""

    logprobs: Tensor
    entropy: Tensor
    ref_logprobs: Tensor
    exact_kl: Tensor | None


@dataclass
class _Sums:
    """What the micro-batches of one process add to the means of the step; `deviation` is a maximum.

    `broken` says where the loss was not finite, if it was somewhere.
    """

    loss: float = 0.0
    kl: float = 0.0
    exact_kl: float = 0.0
    entropy: float = 0.0
    clipped: float = 0.0
    deviation: float = 0.0
    broken: str | None = None

    @classmethod
    def over(cls, parts: "Sequence[_Sums]") -> "_Sums":
        return cls(
            loss=math.fsum(part.loss for part in parts),
            kl=math.fsum(part.kl for part in parts),
            exact_kl=math.fsum(part.exact_kl for part in parts),
            entropy=math.fsum(part.entropy for part in parts),
            clipped=math.fsum(part.clipped for part in parts),
            deviation=max(part.deviation for part in parts),
            broken=next((part.broken for part in parts if part.broken), None),
        )


class Learner:
    """Moves `policy` with `optimizer`; `reference` is the frozen model that KL is measured against.

    `settings` may be replaced between updates, as schedules want. Each process of `world` brings its own micro-batches to
    an update, and all make the same one; `shards` holds the models if their weights are spread over the processes.

    Raises: ConfigError if the settings ask for the exact KL and policy or reference cannot give it.
    """

    def __init__(
        self,
        policy: Policy,
        reference: Reference,
        optimizer: torch.optim.Optimizer,
        settings: LearnerSettings,
        *,
        world: World = ALONE,
        shards: ShardedModels | None = None,
    ) -> None:
        self._policy, self._reference, self._optimizer = policy, reference, optimizer
        self._world, self._shards = world, shards
        self._device = next(policy.model.parameters()).device
        self.settings = settings
        self._has_updated = False
        if settings.kl_estimate == "exact":
            for part in (policy, reference):
                require_states(part)

    @torch.no_grad()
    def logprobs(self, batches: Sequence[LearnerBatch]) -> list[Tensor]:
        """The policy's log-probs of the completions of each batch, on the CPU. Shapes: [B, T, C]."""
        found = []
        for batch, is_own in self._in_step(batches):
            compute = partial(self._policy.logprobs, batch.policy, temperature=self.settings.temperature)
            logprobs, _ = self._with_weights(compute)
            if is_own:
                found.append(logprobs.cpu())
        return found

    def update(self, batches: Sequence[LearnerBatch], *, on_policy: bool) -> UpdateStats:
        """One optimiser step over the `batches` of all processes, whose cut does not change the gradient.

        Raises, in all processes alike: RatioMismatch if `on_policy` and a ratio is not 1; NonFiniteError if loss or gradient is not finite;
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
        settings, model = self.settings, self._policy.model
        totals = self._totals(batches)
        num_tokens = sum(totals.tokens)
        self._optimizer.zero_grad(set_to_none=True)
        # Where weights are in shards, a process that failed alone has left the others within an exchange of them.
        with failing_together(self._world) if self._shards is None else nullcontext():
            mismatch = self._mismatch(batches, num_tokens)
            own = self._accumulate(batches, totals)
        sums = _Sums.over(self._world.gather(own))
        mismatch = EngineMismatch.over(self._world.gather(mismatch))
        problem = self._problem(sums, on_policy)
        if problem is None:
            if self._shards is None:
                self._add_up_gradients()
            norm = whole(nn.utils.clip_grad_norm_(model.parameters(), settings.max_grad_norm)).item()
            if not math.isfinite(norm):
                problem = NonFiniteError(f"the gradient norm is {norm}; no weight was changed")
        if problem is not None:
            self._optimizer.zero_grad(set_to_none=True)
            raise problem
        if not self._has_updated:
            _check_gradients(model, self._world)
        self._optimizer.step()
        self._has_updated = True
        return UpdateStats(
            policy_loss=sums.loss,
            kl=sums.kl,
            exact_kl=sums.exact_kl if settings.kl_estimate == "exact" else None,
            entropy=sums.entropy,
            clipped_share=sums.clipped,
            max_ratio_deviation=sums.deviation,
            grad_norm=norm,
            num_tokens=num_tokens,
            mismatch=mismatch,
        )

    def _totals(self, batches: Sequence[LearnerBatch]) -> StepTotals:
        """The counts of the step over all processes, some of which may have no batch."""
        own = StepTotals(0, 0, (0,) * self._policy.num_channels)
        if batches:
            own = StepTotals.of(
                (batch.policy.completion_mask for batch in batches), (batch.finished for batch in batches)
            )
        return StepTotals.over(self._world.gather(own))

    def _accumulate(self, batches: Sequence[LearnerBatch], totals: StepTotals) -> _Sums:
        """Adds the gradient of each micro-batch to those of the weights."""
        settings, num_tokens = self.settings, sum(totals.tokens)
        sums = _Sums()
        for batch, is_own in self._in_step(batches):
            mask = batch.policy.completion_mask
            scored = self._with_weights(partial(self._score, batch))
            logprobs, entropy, ref_logprobs = scored.logprobs, scored.entropy, scored.ref_logprobs
            if not is_own:
                (logprobs.sum() * 0.0).backward()
                continue
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
                sums.broken = f"the loss is {total.item()}{_where(logprobs, batch)}; no weight was changed"
                if self._shards is None:
                    break
            total.backward()
            sums.loss += loss.item()
            sums.kl += kl.item()
            if scored.exact_kl is not None:
                sums.exact_kl += scored.exact_kl.detach().sum().item() / num_tokens
            sums.entropy += entropy.detach()[mask].sum().item() / num_tokens
            sums.clipped += cells.bounded.sum().item() / num_tokens
            sums.deviation = max(sums.deviation, max_ratio_deviation(logprobs, batch.old_logprobs, mask).item())
        return sums

    def _in_step(self, batches: Sequence[LearnerBatch]) -> Iterator[tuple[LearnerBatch, bool]]:
        """The batches on the learner's device, and whether they are this process's own.

        Weights in shards are exchanged at each computation: a process with fewer batches than others gets fillers.
        """
        most = len(batches) if self._shards is None else max(self._world.gather(len(batches)))
        for batch in batches:
            yield batch.to(self._device), True
        filler = filler_batch(int(self._policy.legal_ids[0]), self._policy.num_channels)
        for _ in range(most - len(batches)):
            yield filler.to(self._device), False

    def _with_weights(self, compute: Callable[[], T]) -> T:
        if self._shards is None:
            return compute()
        computed: T = self._shards(compute)
        return computed

    def _problem(self, sums: _Sums, on_policy: bool) -> NonFiniteError | RatioMismatch | None:
        tolerance = _RATIO_TOLERANCES.get(self._policy.compute_dtype, _RATIO_TOLERANCE)
        if sums.broken:
            return NonFiniteError(sums.broken)
        if on_policy and sums.deviation > tolerance:
            return RatioMismatch(
                f"before any update a ratio of training to sampling probability is off 1 by {sums.deviation:.2e} "
                f"(bound {tolerance:g}): the engine does not sample from the policy being trained"
            )
        return None

    def _add_up_gradients(self) -> None:
        """Sums the gradients over the processes; one that had no batch, or no path to a weight, adds 0 to it."""
        if self._world.size == 1:
            return
        trained = [parameter for parameter in self._policy.model.parameters() if parameter.requires_grad]
        for parameter in trained:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        self._world.add_up([parameter.grad for parameter in trained if parameter.grad is not None])

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
        """What the batches of this process add to the step's."""
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


def _check_gradients(model: nn.Module, world: World) -> None:
    """Raises: DeadParameterError naming the trainable parameters whose gradient is zero or absent.

    The first factor of a LoRA pair is left out: its gradient is zero while the second factor is.
    """
    alive = {
        name
        for name, parameter in model.named_parameters()
        if parameter.grad is not None and bool(local_part(parameter.grad).any())
    }
    alive = alive.union(*world.gather(alive))
    dead = [
        name
        for name, parameter in model.named_parameters()
        if parameter.requires_grad and ".lora_A." not in name and name not in alive
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
