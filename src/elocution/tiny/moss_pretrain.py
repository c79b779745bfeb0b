"""Supervised training of the tiny MOSS checkpoint on coded speech in several voices and styles."""

import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm

from elocution.grpo.weights import StepTotals, cell_weights, parse_channel_weights
from elocution.policies.base import PolicyBatch
from elocution.policies.delay_pattern import packed_turn
from elocution.policies.moss import MossPolicy
from elocution.tiny.pretrain import PretrainSettings, warmup_cosine
from elocution.types import Utterance

__all__ = ["Lesson", "lesson_loss", "lessons_of", "teach"]

logger = logging.getLogger(__name__)

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


def teach(
    policy: MossPolicy, lessons: Sequence[Lesson], held_out: Sequence[Lesson], settings: PretrainSettings
) -> None:
    """Teaches `policy` in place; `settings.label_smoothing` has no effect."""
    generator = torch.Generator().manual_seed(settings.seed)
    total = settings.epochs * len(list(_batches(lessons, settings.batch_size, generator)))
    optimizer = torch.optim.AdamW(
        policy.model.parameters(), lr=settings.learning_rate, betas=(0.9, 0.95), weight_decay=settings.weight_decay
    )
    schedule = warmup_cosine(optimizer, settings.warmup_steps, total)
    policy.model.train()
    with tqdm(total=total, desc="teach", unit="step") as bar:
        for epoch in range(settings.epochs):
            running, steps = 0.0, 0
            for batch in _batches(lessons, settings.batch_size, generator):
                loss = lesson_loss(policy, batch)
                optimizer.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(policy.model.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                running, steps = running + loss.item(), steps + 1
                bar.update()
                bar.set_postfix(loss=f"{loss.item():.3f}")
            with torch.no_grad():
                parts = [held_out[i : i + 32] for i in range(0, len(held_out), 32)]
                kept = np.mean([lesson_loss(policy, part).item() for part in parts]) if parts else math.nan
            logger.info("epoch %d: loss %.3f train, %.3f held out", epoch + 1, running / max(steps, 1), kept)
    policy.model.eval()


def lesson_loss(policy: MossPolicy, lessons: Sequence[Lesson]) -> Tensor:
    """Each channel's mean cross-entropy over what it may hold, nats, weighted "1,32". Rows that all share are read once."""
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


def _batches(lessons: Sequence[Lesson], size: int, generator: torch.Generator) -> Iterator[list[Lesson]]:
    """Batches of like length, in a random order; lessons that begin alike come together."""
    jitter = torch.rand(len(lessons), generator=generator)
    order = sorted(range(len(lessons)), key=lambda i: len(lessons[i].rows) + 4.0 * jitter[i].item())
    starts = range(0, len(order), size)
    for index in torch.randperm(len(starts), generator=generator).tolist():
        yield [lessons[i] for i in order[starts[index] : starts[index] + size]]
