"""The processes of a run: how many there are, what each takes of the work, and how they agree.

Started by `torchrun` or `accelerate launch`, each process runs the whole loop on its share; what is decided, is decided
from what all of them have gathered, so that all decide alike. Knows nothing of speech or of models.
"""

import logging
import pickle
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from elocution.errors import ElocutionError, WorldError
from elocution.train.launcher import Place

__all__ = ["ALONE", "OneProcess", "SeveralProcesses", "World", "dealt_back", "failing_together", "open_world", "share"]

logger = logging.getLogger(__name__)

T = TypeVar("T")

_BUCKET = 1 << 24  # elements that are summed at once; a copy of so many is made


class World(Protocol):
    """All processes call the same methods in the same order, from their main thread."""

    @property
    def rank(self) -> int:
        """Which of the processes this is, from 0; process 0 writes the run directory."""

    @property
    def size(self) -> int:
        """How many processes there are."""

    def gather(self, value: T) -> list[T]:
        """The values of all processes, in the order of their ranks; with several processes they are copies.

        Raises: WorldError if a process is gone, or does not come within the longest wait.
        """

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        """Replaces each tensor by its sum over the processes, in place.

        Raises: WorldError if a process is gone.
        """


@dataclass(frozen=True)
class OneProcess:
    """A world of one, in which there is nothing to agree on."""

    rank: int = 0
    size: int = 1

    def gather(self, value: T) -> list[T]:
        return [value]

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        pass


ALONE = OneProcess()


class SeveralProcesses:
    """One of several processes, which torch's default process group connects."""

    def __init__(self, place: Place, wait: timedelta) -> None:
        self._place, self._wait = place, wait
        # Objects go over gloo whatever carries the gradients: it waits for as long as it is told, and names who is late.
        self._control = dist.new_group(backend="gloo", timeout=wait)

    @property
    def rank(self) -> int:
        return self._place.rank

    @property
    def size(self) -> int:
        return self._place.size

    def gather(self, value: T) -> list[T]:
        values: list[Any] = [None] * self.size
        with self._explained():
            dist.monitored_barrier(self._control, timeout=self._wait, wait_all_ranks=True)
            dist.all_gather_object(values, value, group=self._control)
        return values

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        with self._explained():
            for bucket in _buckets(tensors):
                flat = torch.cat([tensor.flatten() for tensor in bucket])
                dist.all_reduce(flat)
                for tensor, part in zip(bucket, flat.split([tensor.numel() for tensor in bucket]), strict=True):
                    tensor.copy_(part.view_as(tensor))

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:  # torch.distributed has no narrower class for a lost connection
            # Said at once: what is still to be put in order may take longer than a launcher waits before it kills.
            logger.warning("process %d of %d has lost another one, and ends", self.rank, self.size)
            raise WorldError(
                f"process {self.rank} of {self.size} goes no further, for another one ended or did not come within "
                f"{self._wait.total_seconds():g} s (train.wait_s); the first error among the processes is the cause. "
                f"torch says: {str(error).splitlines()[0]}"
            ) from error


@contextmanager
def open_world(place: Place, *, device: torch.device, wait_s: float) -> Iterator[World]:
    """The processes among which this one is at `place`, connected while entered; of one process, `ALONE`.

    What lies on a GPU goes over NCCL, all else over gloo. Where they meet is in the environment, as torch wants it.

    Raises: WorldError if they do not find each other.
    """
    if place.size == 1:
        yield ALONE
        return
    wait = timedelta(seconds=wait_s)
    backend = "gloo"
    if device.type == "cuda":
        torch.cuda.set_device(device)
        backend = "cpu:gloo,cuda:nccl"
    try:
        dist.init_process_group(backend, timeout=wait)
    except (RuntimeError, ValueError) as error:
        raise WorldError(f"process {place.rank} of {place.size} cannot reach the others: {error}") from error
    try:
        yield SeveralProcesses(place, wait)
    finally:
        dist.destroy_process_group()


def share(world: World, items: Sequence[T]) -> list[T]:
    """What of `items` is this process's to do: every `size`-th, from its rank on; may be nothing."""
    return list(items[world.rank :: world.size])


def dealt_back(shares: Sequence[Sequence[T]]) -> list[T]:
    """The items that `share` dealt out, in their order again."""
    longest = max(len(each) for each in shares)
    return [each[place] for place in range(longest) for each in shares if place < len(each)]


@contextmanager
def failing_together(world: World) -> Iterator[None]:
    """Leaves in all processes at the same point, with an error if it left with one in any.

    The error of the lowest rank is raised everywhere: as its own class where that is one of ours or torch's, so that
    what all can mend, all mend; else as WorldError.
    """
    if world.size == 1:
        yield
        return
    own: Exception | None = None
    try:
        yield
    except Exception as error:  # raised again below, here or in another process
        own = error
    found = world.gather(None if own is None else _described(own))
    for rank, described in enumerate(found):
        if described is not None:
            if own is not None and rank == world.rank:
                raise own
            kind, text = described
            raise kind(f"in process {rank} of {world.size}: {text}") from own


def _described(error: Exception) -> tuple[type[Exception], str]:
    """The class to raise it as elsewhere, and its message."""
    kind = type(error)
    if isinstance(error, (ElocutionError, RuntimeError, MemoryError)):
        try:
            pickle.dumps(kind)
            kind("")
        except Exception:  # a class that cannot travel, or is made of more than a message
            kind = WorldError
        return kind, str(error) or kind.__name__
    return WorldError, f"{kind.__name__}: {error}"


def _buckets(tensors: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Runs of tensors of one type with at most `_BUCKET` elements in all, or one tensor that has more."""
    bucket: list[Tensor] = []
    for tensor in tensors:
        if bucket and (
            tensor.dtype != bucket[0].dtype or sum(each.numel() for each in bucket) + tensor.numel() > _BUCKET
        ):
            yield bucket
            bucket = []
        bucket.append(tensor)
    if bucket:
        yield bucket
