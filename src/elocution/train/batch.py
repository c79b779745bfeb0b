"""Scored groups -> tensors for the learner: advantages, optimiser steps, micro-batches. Loads no model."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from elocution.grpo.advantages import NO_SPREAD, group_advantages
from elocution.policies.base import PolicyBatch
from elocution.policies.padding import pad_prompts
from elocution.types import Rollout, RolloutGroup

__all__ = [
    "AdvantageBatch",
    "LearnerBatch",
    "advantages_of",
    "has_spread",
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
    """One micro-batch. Shapes: `advantages` [B]; `old_logprobs` [B, T, C], nats; the rest as in `PolicyBatch`."""

    policy: PolicyBatch
    advantages: Tensor
    old_logprobs: Tensor

    @property
    def num_tokens(self) -> int:
        """Unmasked cells."""
        return int(self.policy.completion_mask.sum())

    @property
    def num_positions(self) -> int:
        """Positions that the model reads: prompts once, and all but the last of each completion."""
        lengths = self.policy.completion_mask.any(dim=-1).sum(dim=1)
        return int(self.policy.prompt_mask.sum() + (lengths - 1).clamp_min(0).sum())


def advantages_of(groups: Sequence[RolloutGroup], *, std_floor: float) -> AdvantageBatch:
    """Group-relative advantages; completions without a score take no part and get none."""
    rewards = torch.tensor([[score.value if score.value is not None else 0.0 for score in g.scores] for g in groups])
    scored = torch.tensor([[score.value is not None for score in g.scores] for g in groups])
    result = group_advantages(rewards.double(), scored, std_floor=std_floor)
    return AdvantageBatch(
        advantages=tuple(map(tuple, result.advantages.tolist())), has_signal=tuple(result.has_signal.tolist())
    )


def has_spread(group: RolloutGroup) -> bool:
    """Whether the siblings' scores differ, so that comparing them says something."""
    values = [score.value for score in group.scores if score.value is not None]
    return len(values) > 1 and max(values) - min(values) > NO_SPREAD


@dataclass(frozen=True)
class _TrainingGroup:
    """What of a group enters the loss: scored rollouts and their advantages."""

    group: RolloutGroup
    rollouts: tuple[Rollout, ...]
    advantages: tuple[float, ...]

    @property
    def num_positions(self) -> int:
        """Positions that the learner computes: the prompt once, and all but the last of each completion."""
        return len(self.group.prompt_ids) + sum(len(rollout.completion.ids) - 1 for rollout in self.rollouts)


def minibatches(groups: Sequence[RolloutGroup], batch: AdvantageBatch, count: int) -> list[list[_TrainingGroup]]:
    """The groups with signal, dealt into at most `count` optimiser steps of nearly equal size."""
    chosen = []
    for group, advantages, has_signal in zip(groups, batch.advantages, batch.has_signal, strict=True):
        if not has_signal:
            continue
        scored = [i for i, score in enumerate(group.scores) if score.value is not None]
        chosen.append(
            _TrainingGroup(group, tuple(group.rollouts[i] for i in scored), tuple(advantages[i] for i in scored))
        )
    dealt = [chosen[start::count] for start in range(count)]
    return [part for part in dealt if part]


def micro_batches(groups: Sequence[_TrainingGroup], max_positions: int) -> list[LearnerBatch]:
    """Whole groups, longest first, packed so that a micro-batch computes at most `max_positions` positions.

    A group that is larger than that alone makes a micro-batch of its own.
    """
    parts: list[list[_TrainingGroup]] = []
    room = 0
    for group in sorted(groups, key=lambda group: -group.num_positions):
        if group.num_positions > room or not parts:
            parts.append([])
            room = max_positions
        parts[-1].append(group)
        room -= group.num_positions
    return [learner_batch(part) for part in parts]


def learner_batch(groups: Sequence[_TrainingGroup]) -> LearnerBatch:
    """Tensors of a few groups, completions padded on the right to the longest."""
    prompt_ids, prompt_mask = pad_prompts([group.group.prompt_ids for group in groups])
    rows = [(index, rollout) for index, group in enumerate(groups) for rollout in group.rollouts]
    longest = max(len(rollout.completion.ids) for _, rollout in rows)
    channels = rows[0][1].completion.ids.shape[1]
    shape = (len(rows), longest, channels)
    padding_id = int(rows[0][1].completion.ids[0, 0])  # any id that the policy may draw
    ids = torch.full(shape, padding_id, dtype=torch.long)
    mask = torch.zeros(shape, dtype=torch.bool)
    old_logprobs = torch.zeros(shape)
    for row, (_, rollout) in enumerate(rows):
        length = len(rollout.completion.ids)
        ids[row, :length] = torch.from_numpy(rollout.completion.ids)
        old_logprobs[row, :length] = torch.from_numpy(rollout.completion.rollout_logprobs)
        mask[row, :length] = True
    return LearnerBatch(
        policy=PolicyBatch(prompt_ids, prompt_mask, torch.tensor([index for index, _ in rows]), ids, mask),
        advantages=torch.tensor([advantage for group in groups for advantage in group.advantages]),
        old_logprobs=old_logprobs,
    )
