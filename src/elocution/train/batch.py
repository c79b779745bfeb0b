"""Scored groups -> tensors for the learner: advantages, optimiser steps, micro-batches. Loads no model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from elocution.errors import ConfigError
from elocution.grpo.advantages import ADVANTAGES, gdpo_advantages
from elocution.policies.base import PolicyBatch
from elocution.policies.padding import completion_lengths, pad_prompts
from elocution.types import FinishReason, Rollout, RolloutGroup, Score

__all__ = [
    "AdvantageBatch",
    "LearnerBatch",
    "TrainingGroup",
    "advantages_of",
    "filler_batch",
    "learner_batch",
    "micro_batches",
    "minibatches",
]


@dataclass(frozen=True)
class AdvantageBatch:
    """Advantages of all groups of a step. Shapes: `advantages` [P][G]; `has_signal` [P].

    A group without signal (equal rewards, or fewer than two scored siblings) is left out of the loss.
    """

    advantages: tuple[tuple[float, ...], ...]
    has_signal: tuple[bool, ...]


@dataclass(frozen=True)
class LearnerBatch:
    """One micro-batch. Shapes: `advantages` [B]; `finished` [B] bool, whether a completion ended with a stop id;
    `old_logprobs` [B, T, C], nats, what ratios start from; `rollout_logprobs` [B, T, C], under which the ids were drawn.
    """

    policy: PolicyBatch
    advantages: Tensor
    finished: Tensor
    old_logprobs: Tensor
    rollout_logprobs: Tensor

    @property
    def num_tokens(self) -> int:
        """Unmasked cells."""
        return int(self.policy.completion_mask.sum())

    @property
    def num_positions(self) -> int:
        """Positions that the model reads: prompts once, and all but the last of each completion."""
        lengths = completion_lengths(self.policy.completion_mask)
        return int(self.policy.prompt_mask.sum() + (lengths - 1).clamp_min(0).sum())

    def to(self, device: torch.device) -> "LearnerBatch":
        """The same batch on `device`; itself if it is there already."""
        if self.advantages.device == device:
            return self
        moved = {
            field.name: getattr(self, field.name).to(device, non_blocking=True)
            for field in fields(self)
            if field.name != "policy"
        }
        return LearnerBatch(policy=self.policy.to(device), **moved)


def advantages_of(
    groups: Sequence[RolloutGroup],
    *,
    std_floor: float,
    estimator: str = "grpo",
    part_weights: Mapping[str, float] | None = None,
) -> AdvantageBatch:
    """Advantages over the siblings, or over the step, as `estimator` says; completions without a score get none.

    `estimator` is a name of `ADVANTAGES`, or "gdpo", which combines the parts of each score by `part_weights`.

    Raises: ConfigError if a score lacks a part that has a weight.
    """
    scored = torch.tensor([[score.value is not None for score in g.scores] for g in groups], device="cpu")
    if estimator == "gdpo":
        weights = part_weights or {}
        parts = [[_parts(score, weights) for score in g.scores] for g in groups]
        result = gdpo_advantages(
            torch.tensor(parts, dtype=torch.float64, device="cpu"),
            scored,
            torch.tensor(list(weights.values()), dtype=torch.float64, device="cpu"),
            std_floor=std_floor,
        )
    else:
        values = [[score.value or 0.0 for score in g.scores] for g in groups]
        rewards = torch.tensor(values, dtype=torch.float64, device="cpu")
        result = ADVANTAGES[estimator](rewards, scored, std_floor=std_floor)
    return AdvantageBatch(
        advantages=tuple(map(tuple, result.advantages.tolist())), has_signal=tuple(result.has_signal.tolist())
    )


def _parts(score: Score, weights: Mapping[str, float]) -> list[float]:
    if score.value is None:
        return [0.0] * len(weights)
    missing = weights.keys() - score.parts.keys()
    if missing:
        raise ConfigError(
            f"algorithm.part_weights names {sorted(missing)}, but the reward's parts are {sorted(score.parts)}"
        )
    return [score.parts[name] for name in weights]


@dataclass(frozen=True)
class TrainingGroup:
    """What of a group enters the loss: scored rollouts and their advantages."""

    group: RolloutGroup
    rollouts: tuple[Rollout, ...]
    advantages: tuple[float, ...]

    @property
    def num_positions(self) -> int:
        """Positions that the learner computes: the prompt once, and all but the last of each completion."""
        return len(self.group.prompt_ids) + sum(len(rollout.completion.ids) - 1 for rollout in self.rollouts)


def minibatches(
    groups: Sequence[RolloutGroup], batch: AdvantageBatch, count: int, *, mask_truncated: bool = False
) -> list[list[TrainingGroup]]:
    """The groups with signal, dealt into at most `count` optimiser steps of nearly equal size.

    `mask_truncated` leaves out completions that used up their budget, though their scores were compared.
    """
    chosen = []
    for group, advantages, has_signal in zip(groups, batch.advantages, batch.has_signal, strict=True):
        if not has_signal:
            continue
        scored = [
            index
            for index, (rollout, score) in enumerate(zip(group.rollouts, group.scores, strict=True))
            if score.value is not None
            and not (mask_truncated and rollout.completion.finish_reason is FinishReason.LENGTH)
        ]
        if not scored:
            continue
        chosen.append(
            TrainingGroup(group, tuple(group.rollouts[i] for i in scored), tuple(advantages[i] for i in scored))
        )
    dealt = [chosen[start::count] for start in range(count)]
    return [part for part in dealt if part]


def micro_batches(
    groups: Sequence[TrainingGroup], max_positions: int, old_logprobs: Mapping[int, Tensor] | None = None
) -> list[LearnerBatch]:
    """Whole groups, longest first, packed so that a micro-batch computes at most `max_positions` positions.

    A group that is larger than that alone makes a micro-batch of its own.
    """
    parts: list[list[TrainingGroup]] = []
    room = 0
    for group in sorted(groups, key=lambda group: -group.num_positions):
        if group.num_positions > room or not parts:
            parts.append([])
            room = max_positions
        parts[-1].append(group)
        room -= group.num_positions
    return [learner_batch(part, old_logprobs) for part in parts]


def learner_batch(groups: Sequence[TrainingGroup], old_logprobs: Mapping[int, Tensor] | None = None) -> LearnerBatch:
    """Tensors of a few groups on the CPU, completions padded on the right to the longest.

    Cells that were no choice are masked. `old_logprobs` are the trainer's own [T, C], by the id() of each completion; without them ratios start from the
    log-probs of the rollout.
    """
    prompt_ids, prompt_mask = pad_prompts([group.group.prompt_ids for group in groups])
    rows = [(index, rollout) for index, group in enumerate(groups) for rollout in group.rollouts]
    longest = max(len(rollout.completion.ids) for _, rollout in rows)
    channels = rows[0][1].completion.ids.shape[1]
    shape = (len(rows), longest, channels)
    padding_id = int(rows[0][1].completion.ids[0, 0])  # any id that the policy may draw
    ids = torch.full(shape, padding_id, dtype=torch.long, device="cpu")
    mask = torch.zeros(shape, dtype=torch.bool, device="cpu")
    drawn_at, old = torch.zeros(shape, device="cpu"), torch.zeros(shape, device="cpu")
    for row, (_, rollout) in enumerate(rows):
        length = len(rollout.completion.ids)
        ids[row, :length] = torch.from_numpy(rollout.completion.ids)
        drawn_at[row, :length] = torch.from_numpy(rollout.completion.rollout_logprobs)
        old[row, :length] = old_logprobs[id(rollout.completion)] if old_logprobs else drawn_at[row, :length]
        mask[row, :length] = True if rollout.actions is None else torch.from_numpy(rollout.actions)
    row_prompt = torch.tensor([index for index, _ in rows], device="cpu")
    finished = [rollout.completion.finish_reason is FinishReason.STOP for _, rollout in rows]
    return LearnerBatch(
        policy=PolicyBatch(prompt_ids, prompt_mask, row_prompt, ids, mask),
        advantages=torch.tensor([advantage for group in groups for advantage in group.advantages], device="cpu"),
        finished=torch.tensor(finished, device="cpu"),
        old_logprobs=old,
        rollout_logprobs=drawn_at,
    )


def filler_batch(legal_id: int, num_channels: int) -> LearnerBatch:
    """The smallest batch there is, for a process that must compute as often as the others; to be given no weight."""
    one = torch.ones(1, 1, dtype=torch.long, device="cpu")
    prompt = one if num_channels == 1 else one[..., None].expand(1, 1, num_channels)
    cell = torch.ones(1, 1, num_channels, dtype=torch.long, device="cpu")
    nothing = torch.zeros(1, 1, num_channels, device="cpu")
    return LearnerBatch(
        policy=PolicyBatch(prompt * legal_id, one, one[0] * 0, cell * legal_id, cell.bool()),
        advantages=nothing[0, 0, :1],
        finished=one[0].bool(),
        old_logprobs=nothing,
        rollout_logprobs=nothing,
    )
