"""Stages that run at the same time, each in a thread of its own, with a bounded queue behind it; order is kept.

    put ──> [ jobs ] ──> stage ──> [ results ] ──> stage ──> [ results ] ──> get

A stage waits while there is nothing before it or no room behind it, and goes on when there is. The first error in a
stage, or leaving the context, wakes and ends them all; `put` and `get` then raise that error. Knows nothing of speech,
models or rewards.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

__all__ = ["Inputs", "Pipeline", "Stage"]

logger = logging.getLogger(__name__)

T = TypeVar("T")
Job = TypeVar("Job")
Result = TypeVar("Result")

_LOOK_S = 0.1  # how often `get` looks whether it shall stop


@dataclass(frozen=True)
class Stage:
    """`work` is a generator that turns what it takes into what it yields; at most `room` results wait behind it."""

    name: str
    work: Callable[["Inputs[Any]"], Generator[Any, None, None]]
    room: int


class _Ended(BaseException):
    """Unwinds the work of a stage; no Exception, so that no work takes it for a failure that it can handle."""


class _Clock:
    """How long its owner has worked rather than waited, seconds."""

    def __init__(self) -> None:
        self._busy_s = 0.0
        self._since: float | None = None

    def start(self) -> None:
        self._since = time.perf_counter()

    def pause(self) -> None:
        self._busy_s = self.busy_s
        self._since = None

    @property
    def busy_s(self) -> float:
        return self._busy_s + (0.0 if self._since is None else time.perf_counter() - self._since)


class _State:
    """What all queues share: one condition for every change, whether all is over, and the first error."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.is_over = False
        self.error: BaseException | None = None

    def end(self, error: BaseException | None = None) -> bool:
        """Whether this call, and not one before, ended it."""
        with self.changed:
            if self.is_over:
                return False
            self.is_over, self.error = True, error
            self.changed.notify_all()
            return True

    def wait(self, is_ready: Callable[[], bool], clock: _Clock, wait_s: float | None = None) -> bool:
        """Waits, with `changed` held, until `is_ready`; False if `wait_s` went by before.

        Raises: _Ended if all is over.
        """
        if not self.is_over and not is_ready():
            clock.pause()
            try:
                self.changed.wait_for(lambda: self.is_over or is_ready(), wait_s)
            finally:
                clock.start()
        if self.is_over:
            raise _Ended
        return is_ready()


class _Queue(Generic[T]):
    """At most `room` items in order; None bounds nothing."""

    def __init__(self, state: _State, room: int | None) -> None:
        self._state, self._room = state, room
        self._items: deque[T] = deque()

    def put(self, item: T, clock: _Clock) -> None:
        with self._state.changed:
            self._state.wait(lambda: self._room is None or len(self._items) < self._room, clock)
            self._items.append(item)
            self._state.changed.notify_all()

    def take(self, limit: int, clock: _Clock, wait_s: float | None = None) -> list[T]:
        """All that is there, at least one and at most `limit`; none only if `wait_s` went by."""
        with self._state.changed:
            if not self._state.wait(lambda: bool(self._items), clock, wait_s):
                return []
            taken = [self._items.popleft() for _ in range(min(limit, len(self._items)))]
            self._state.changed.notify_all()
            return taken


class Inputs(Generic[T]):
    """What a stage takes from the queue before it; without end, for a stage ends with its pipeline."""

    def __init__(self, queue: _Queue[T], state: _State, clock: _Clock) -> None:
        self._queue, self._state, self._clock = queue, state, clock

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        return self.take(1)[0]

    def take(self, limit: int) -> list[T]:
        """Waits for one item; returns all that are there, at most `limit`."""
        return self._queue.take(limit, self._clock)

    def check(self) -> None:
        """Leaves the stage if the pipeline is over; for work that waits for something else than its inputs."""
        if self._state.is_over:
            raise _Ended


class Pipeline(Generic[Job, Result]):
    """Runs `stages` in order while entered; the caller, named `consumer`, puts jobs in and takes results out.

    Jobs are not bounded by a queue: the caller puts no more than it means to have under way.
    """

    def __init__(self, stages: Sequence[Stage], *, consumer: str) -> None:
        self._state = _State()
        self._consumer = _Clock()
        self._clocks = {stage.name: _Clock() for stage in stages} | {consumer: self._consumer}
        self._jobs: _Queue[Job] = _Queue(self._state, None)
        self._threads: list[threading.Thread] = []
        queue: _Queue[Any] = self._jobs
        for stage in stages:
            behind: _Queue[Any] = _Queue(self._state, stage.room)
            thread = threading.Thread(target=self._run, args=(stage, queue, behind), name=stage.name, daemon=True)
            self._threads.append(thread)
            queue = behind
        self._results: _Queue[Result] = queue

    def __enter__(self) -> Self:
        self._consumer.start()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ends every stage at its next look at a queue, and waits for that."""
        self._state.end()
        for thread in self._threads:
            thread.join()
        if self._state.error is not None and self._state.error is not error:
            logger.warning("a stage failed while the run was ending: %r", self._state.error)

    def put(self, job: Job) -> None:
        """Raises: the first error of a stage."""
        try:
            self._jobs.put(job, self._consumer)
        except _Ended:
            self._raise()

    def get(self, should_stop: Callable[[], bool] = lambda: False) -> Result | None:
        """The next result, in the order of the jobs; None if `should_stop` says so before it is there.

        Raises: the first error of a stage.
        """
        try:
            while not should_stop():
                if taken := self._results.take(1, self._consumer, _LOOK_S):
                    return taken[0]
        except _Ended:
            self._raise()
        return None

    def busy_s(self) -> dict[str, float]:
        """How long each stage and the consumer have worked rather than waited so far, seconds."""
        with self._state.changed:
            return {name: clock.busy_s for name, clock in self._clocks.items()}

    def _raise(self) -> None:
        raise self._state.error or RuntimeError("the pipeline is over")

    def _run(self, stage: Stage, before: _Queue[Any], behind: _Queue[Any]) -> None:
        clock = self._clocks[stage.name]
        clock.start()
        try:
            with closing(stage.work(Inputs(before, self._state, clock))) as results:
                for result in results:
                    behind.put(result, clock)
        except _Ended:
            pass
        except BaseException as error:  # raised again where the results are taken
            if not self._state.end(error):
                logger.warning("the stage %s failed while the run was ending: %r", stage.name, error)
        finally:
            clock.pause()
