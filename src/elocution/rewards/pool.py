"""Scorers in worker processes: one model set per worker, a time limit per clip, failures as values.

A worker that dies or hangs is replaced; its clip is tried once more and then reported as failed.
"""

import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import TimeoutError as FutureTimeoutError
from functools import partial
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from pebble import ProcessFuture, ProcessPool

from elocution.errors import RewardUnavailable
from elocution.measures import load_transcriber
from elocution.types import Audio

__all__ = ["ScoringPool", "transcriber_factory"]

Task = TypeVar("Task")
Result = TypeVar("Result")

_ATTEMPTS = 2
_START_TIMEOUT_S = 120.0
# The scorers are single-threaded; libraries that would start a thread per core must not.
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}

_score: Callable[[Any], Any]


class ScoringPool(Generic[Task, Result]):
    """`workers` processes that each call `factory()` once and its result for every task.

    `factory` and the tasks must be picklable; `workers` = 0 means one for each core. Processes start at the first
    call and end with the context.
    """

    def __init__(
        self, factory: Callable[[], Callable[[Task], Result]], *, workers: int = 0, timeout_s: float = 60.0
    ) -> None:
        self._factory, self._timeout_s = factory, timeout_s
        self._workers = workers or len(os.sched_getaffinity(0))
        self._pool: ProcessPool | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.stop()
            self._pool.join()
            self._pool = None

    def map(self, tasks: Sequence[Task]) -> list[Result | Exception]:
        """The result of every task in order; an exception stands where a task failed twice.

        Raises: RewardUnavailable if the workers cannot start.
        """
        results: dict[int, Result | Exception] = {}
        pending = list(range(len(tasks)))
        for _ in range(_ATTEMPTS):
            pool = self._running()
            futures = {index: pool.schedule(_run, args=(tasks[index],), timeout=self._timeout_s) for index in pending}
            results |= {index: _outcome(future, self._timeout_s) for index, future in futures.items()}
            pending = [index for index in pending if isinstance(results[index], Exception)]
        return [results[index] for index in range(len(tasks))]

    def _running(self) -> ProcessPool:
        """The pool, started and known to answer."""
        if self._pool is not None and self._pool.active:
            return self._pool
        saved = {name: os.environ.get(name) for name in _ONE_THREAD}
        os.environ.update(_ONE_THREAD)
        try:
            pool = ProcessPool(
                max_workers=self._workers,
                initializer=_start,
                initargs=(self._factory,),
                context=multiprocessing.get_context("spawn"),
            )
            ready = pool.schedule(_ping, timeout=_START_TIMEOUT_S)
            try:
                ready.result()
            except Exception as error:
                pool.stop()
                pool.join()
                raise RewardUnavailable(f"the scoring processes cannot start: {error}") from error
        finally:
            for name, value in saved.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value
        self._pool = pool
        return pool


def _start(factory: Callable[[], Callable[[Any], Any]]) -> None:
    global _score
    _score = factory()


def _run(task: Any) -> Any:
    return _score(task)


def _ping() -> bool:
    return callable(_score)


def _outcome(future: ProcessFuture, timeout_s: float) -> Any:
    try:
        return future.result()
    except FutureTimeoutError:
        return RewardUnavailable(f"scoring took longer than {timeout_s:g} s")
    except Exception as error:  # a worker's failure of any kind is this clip's result, and is counted
        return error


def transcriber_factory(name: str) -> Callable[[], Callable[[Audio], str]]:
    """A picklable factory of the recogniser `name`'s `transcribe`."""
    return partial(_transcribe, name)


def _transcribe(name: str) -> Callable[[Audio], str]:
    return load_transcriber(name).transcribe
