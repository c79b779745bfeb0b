"""The loop that teaches a tiny checkpoint: AdamW, a warm-up and a cosine, batches of like length."""

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from tqdm import tqdm

__all__ = ["PretrainSettings", "like_length_batches", "mean_loss", "teach", "warmup_cosine"]

logger = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True)
class PretrainSettings:
    """Units: passes over the data, utterances a step, optimiser steps of warm-up."""

    epochs: int = 10
    batch_size: int = 48
    learning_rate: float = 2e-3
    warmup_steps: int = 100
    weight_decay: float = 0.1
    label_smoothing: float = 0.0
    seed: int = 0


def teach(
    model: nn.Module,
    examples: Sequence[T],
    *,
    length: Callable[[T], int],
    loss: Callable[[Sequence[T]], Tensor],
    held_out_loss: Callable[[], float],
    settings: PretrainSettings,
) -> None:
    """Moves `model` in place down the `loss` of batches of `examples`; logs both losses after each epoch."""
    generator = torch.Generator().manual_seed(settings.seed)
    total = settings.epochs * math.ceil(len(examples) / settings.batch_size)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=settings.learning_rate, betas=(0.9, 0.95), weight_decay=settings.weight_decay
    )
    schedule = warmup_cosine(optimizer, settings.warmup_steps, total)
    model.train()
    with tqdm(total=total, desc="pretrain", unit="step") as bar:
        for epoch in range(settings.epochs):
            losses: list[float] = []
            for batch in like_length_batches(examples, settings.batch_size, length, generator):
                value = loss(batch)
                optimizer.zero_grad()
                value.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                losses.append(value.item())
                bar.update()
                bar.set_postfix(loss=f"{losses[-1]:.3f}")
            logger.info("epoch %d: loss %.3f train, %.3f held out", epoch + 1, np.mean(losses), held_out_loss())
    model.eval()


def like_length_batches(
    examples: Sequence[T], size: int, length: Callable[[T], int], generator: torch.Generator
) -> Iterator[list[T]]:
    """All examples in batches of like length, in a random order."""
    jitter = torch.rand(len(examples), generator=generator)
    order = sorted(range(len(examples)), key=lambda i: length(examples[i]) + 4.0 * jitter[i].item())
    starts = range(0, len(order), size)
    for index in torch.randperm(len(starts), generator=generator).tolist():
        yield [examples[i] for i in order[starts[index] : starts[index] + size]]


@torch.no_grad()
def mean_loss(loss: Callable[[Sequence[T]], Tensor], examples: Sequence[T], size: int) -> float:
    """The mean over batches of `size` in their order; NaN without examples."""
    starts = range(0, len(examples), size)
    return float(np.mean([loss(examples[i : i + size]).item() for i in starts])) if examples else math.nan


def warmup_cosine(optimizer: torch.optim.Optimizer, warmup: int, total: int) -> torch.optim.lr_scheduler.LambdaLR:
    """Rises over `warmup` steps and falls along a cosine to a fiftieth at step `total`."""
    return torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda step: min(1.0, (step + 1) / warmup) * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * step / total))),
    )
