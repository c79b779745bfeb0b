"""Supervised training of the tiny MOSS checkpoint on coded speech in several voices and styles."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elocution.grpo.weights import StepTotals, cell_weights, parse_channel_weights
from elocution.policies.base import PolicyBatch
from elocution.policies.delay_pattern import packed_turn
from elocution.policies.moss import MossPolicy
from elocution.tiny.teaching import PretrainSettings, mean_loss, teach
from elocution.types import Utterance

__all__ = ["Lesson", "lesson_loss", "lessons_of", "pretrain_moss"]

# As in the official fine-tuning: text 1, all codebooks together 32.
_CHANNEL_WEIGHTS = "1,32"


@dataclass(frozen=True)
class Lesson:
    """A prompt with its answer, and the row at which the answer starts. Shapes: `rows` [N, 1 + Q]."""

    rows: NDArray[np.int64]
    start: int


def lessons_of(policy: MossPolicy, utterances: Sequence[Utterance], codes: Sequence[NDArray[np.int64]]) -> list[Lesson]:
    """What to teach: `codes[i]` as the packed answer to the prompt of `utterances[i]`, then the end of the turn."""
    end = np.full((1, policy.num_channels), policy.slots.pad_code, dtype=np.int64)
    end[0, 0] = policy.slots.im_end
    lessons = []
    for utterance, clip in zip(utterances, codes, strict=True):
        prompt = policy.prompt_ids(utterance)
        answer = packed_turn(clip, policy.slots, speaker="assistant")
        lessons.append(Lesson(np.concatenate([prompt, answer, end]), len(prompt)))
    return lessons


def pretrain_moss(
    policy: MossPolicy, lessons: Sequence[Lesson], held_out: Sequence[Lesson], settings: PretrainSettings
) -> None:
    """Teaches `policy` in place; `settings.label_smoothing` has no effect."""

    def loss(batch: Sequence[Lesson]) -> Tensor:
        return lesson_loss(policy, batch)

    teach(
        policy.model,
        lessons,
        length=lambda lesson: len(lesson.rows),
        loss=loss,
        held_out_loss=lambda: mean_loss(loss, held_out, 32),
        settings=settings,
    )


def lesson_loss(policy: MossPolicy, lessons: Sequence[Lesson]) -> Tensor:
    """Each channel's mean cross-entropy over what it may hold, nats, weighted "1,32". Rows that all share are read once.

    The rows of prompts behind those are read as a model's own, so that the first text of an answer is taught among a few ids more
    than it is drawn from.
    """
    shared = _shared_rows(lessons)
    longest = max(len(lesson.rows) for lesson in lessons) - shared
    ids = torch.zeros(len(lessons), longest, policy.num_channels, dtype=torch.long)
    taught = torch.zeros(ids.shape, dtype=torch.bool)
    for row, lesson in enumerate(lessons):
        own = torch.from_numpy(lesson.rows[shared:])
        ids[row, : len(own)] = own
        answer = lesson.start - shared
        taught[row, answer : len(own), 0] = True
        # What a model draws in the row that ends a clip, and in the frame that begins there, is taught by nothing.
        taught[row, answer : len(own), 1:] = own[answer:, 1:] != policy.slots.pad_code
    prefix = torch.from_numpy(lessons[0].rows[None, :shared])
    batch = PolicyBatch(
        prefix, torch.ones(1, shared, dtype=torch.long), torch.zeros(len(lessons), dtype=torch.long), ids, taught
    )
    logprobs, _ = policy.logprobs(batch, temperature=1.0)
    ended = torch.ones(len(lessons), dtype=torch.bool)
    weights = cell_weights(
        taught,
        ended,
        StepTotals.of([taught], [ended]),
        aggregation="token",
        channel_weights=parse_channel_weights(_CHANNEL_WEIGHTS, policy.num_channels),
    )
    return -(weights.to(logprobs.dtype) * logprobs).sum()


def _shared_rows(lessons: Sequence[Lesson]) -> int:
    """How many rows all lessons begin with, of those before any answer."""
    shortest = min(lesson.start for lesson in lessons)
    first = lessons[0].rows[:shortest]
    alike = np.all([(lesson.rows[:shortest] == first).all(axis=1) for lesson in lessons], axis=0)
    return int(np.argmin(alike)) if not alike.all() else shortest
