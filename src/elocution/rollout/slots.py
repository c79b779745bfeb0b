"""Completions under way in an engine's batch: their random numbers, and what was drawn so far. Knows no model."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from elocution.types import Completion, FinishReason

__all__ = ["Job", "Slots"]


@dataclass(frozen=True, slots=True)
class Job:
    """A completion to be drawn: the `sibling`-th of the `request`-th request."""

    request: int
    sibling: int
    seed: tuple[int, ...]
    max_new: int


class Slots:
    """Room for `count` completions at a time of at most `longest` positions. A slot is free again when its completion ends.

    `active` [B] holds the slot behind each row of the model, in the model's order.
    """

    def __init__(self, count: int, longest: int, channels: int, device: torch.device) -> None:
        shape = (count, longest, channels)
        self.active = torch.empty(0, dtype=torch.long, device=device)
        self._jobs: list[Job | None] = [None] * count
        self._ids = torch.zeros(shape, dtype=torch.long, device=device)
        self._logprobs = torch.zeros(shape, device=device)
        self._uniforms = torch.zeros(shape, device=device)
        self._lengths = torch.zeros(count, dtype=torch.long, device=device)
        self._budgets = torch.zeros(count, dtype=torch.long, device=device)

    @property
    def num_free(self) -> int:
        return len(self._jobs) - len(self.active)

    def join(self, jobs: Sequence[Job]) -> None:
        """Gives each of `jobs` a free slot, behind those that are active."""
        free = [slot for slot, job in enumerate(self._jobs) if job is None]
        slots = free[: len(jobs)]
        for slot, job in zip(slots, jobs, strict=True):
            self._jobs[slot] = job
            self._uniforms[slot, : job.max_new] = _uniforms(job, self._ids.shape[-1]).to(self._uniforms.device)
        joining = torch.tensor(slots, device=self.active.device)
        self._lengths[joining] = 0
        self._budgets[joining] = torch.tensor([job.max_new for job in jobs], device=joining.device)
        self.active = torch.cat([self.active, joining])

    def uniforms(self, rows: slice) -> Tensor:
        """The numbers by which the next position of the active `rows` is drawn, in [0, 1). Shapes: [B', C]."""
        slots = self.active[rows]
        return self._uniforms[slots, self._lengths[slots]]

    def append(self, ids: Tensor, logprobs: Tensor) -> Tensor:
        """Writes the next position of every active row; says which have used up their budgets. Shapes: [B, C] each -> [B]."""
        places = self._lengths[self.active]
        self._ids[self.active, places] = ids
        self._logprobs[self.active, places] = logprobs
        self._lengths[self.active] = places + 1
        return places + 1 >= self._budgets[self.active]

    def ended(self, over: Tensor, stopped: Tensor, version: int) -> Iterator[tuple[int, int, Completion]]:
        """The completions of the active rows that are `over`, as `RolloutEngine.stream` gives them. Shapes: [B] each."""
        for slot, is_stop in zip(self.active[over].tolist(), stopped[over].tolist(), strict=True):
            job, length = self._jobs[slot], int(self._lengths[slot])
            assert job is not None
            self._jobs[slot] = None
            completion = Completion(
                ids=self._ids[slot, :length].cpu().numpy().copy(),
                rollout_logprobs=self._logprobs[slot, :length].cpu().numpy().copy(),
                finish_reason=FinishReason.STOP if is_stop else FinishReason.LENGTH,
                policy_version=version,
            )
            yield job.request, job.sibling, completion

    def keep(self, rows: Tensor) -> None:
        """Goes on with the active rows `rows` alone, in that order."""
        self.active = self.active[rows]


def _uniforms(job: Job, channels: int) -> Tensor:
    """Numbers of the seed's own stream. Shapes: [max_new, C]."""
    generator = np.random.Generator(np.random.Philox(np.random.SeedSequence(job.seed)))
    return torch.from_numpy(generator.random((job.max_new, channels)).astype(np.float32))
