"""Scorers in worker processes: one model set per worker, a time limit per clip, failures as values.

A worker that dies or hangs is replaced; its clip is tried once more and then reported as failed. A worker ends with
the process that started it, however that one ended.
"""

import multiprocessing
import multiprocessing.connection
import os
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar, runtime_checkable

from pebble import ProcessExpired, ProcessPool

from elocution.errors import RewardUnavailable
from elocution.measures import check_recognisers, load_transcriber
from elocution.measures.routing import transcribe_together
from elocution.rewards.base import Pending
from elocution.rewards.batches import Batches
from elocution.rewards.places import take_place
from elocution.types import Audio

__all__ = ["ScoresTogether", "ScoringPool", "transcriber_factory"]

Task = TypeVar("Task")
Result = TypeVar("Result")

_ATTEMPTS = 2
_START_TIMEOUT_S = 120.0
# Pools that start at the same time would restore each other's environment.
_STARTING = threading.Lock()
# The scorers are single-threaded; libraries that would start a thread per core must not.
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}

_score: Callable[[Any], Any]


@runtime_checkable
class ScoresTogether(Protocol):
    """What a factory may give so that several tasks are worked on at once."""

    def together(self, tasks: Sequence[Any]) -> Sequence[Any]:
        """The result of each task; the others do not change it."""


class ScoringPool(Generic[Task, Result]):
    """`workers` processes that each call one of `factories` once, and its result for every task.

    With several factories, for example one for each GPU, the processes share them out evenly, and one that replaces another
    has that one's. Factories and tasks must be picklable; `workers` = 0 means one for each core. Processes start at the
    first task and end with the context. Several threads may use it at once and share the processes. With a `batch_size` above 1,
    tasks that wait while all workers are busy are taken together; each adds `timeout_s` to the limit of its batch.
    """

    def __init__(
        self,
        *factories: Callable[[], Callable[[Task], Result]],
        workers: int = 0,
        timeout_s: float = 60.0,
        batch_size: int = 1,
    ) -> None:
        self._factories, self._timeout_s = factories, timeout_s
        self._workers = workers or os.cpu_count() or 1
        self._batches = (
            Batches(self._schedule_together, workers=self._workers, size=batch_size) if batch_size > 1 else None
        )
        self._pool: ProcessPool | None = None
        self._places: Path | None = None
        self._is_closed = False

    def __enter__(self) -> Self:
        self._is_closed = False
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with _STARTING:
            self._is_closed = True
            if self._pool is not None:
                _end(self._pool)
                self._pool = None
            if self._places is not None:
                self._places.unlink(missing_ok=True)
                self._places = None
        if self._batches is not None:
            self._batches.close()

    def submit(self, task: Task) -> Pending[Result | Exception]:
        """Begins with `task` as soon as a worker is free. One that fails is tried once more while its result is waited for.

        Raises: RewardUnavailable if the workers cannot start.
        """
        alone = partial(self._schedule, task)
        if self._batches is None:
            return _Attempts(alone, alone, self._timeout_s)
        with _STARTING:
            self._running()
        # A task that failed in company is tried again alone, where it spoils no other.
        return _Attempts(partial(self._batches.submit, task), alone, self._timeout_s)

    def map(
        self, tasks: Sequence[Task], on_progress: Callable[[int, int], None] | None = None
    ) -> list[Result | Exception]:
        """The result of every task in order; an exception stands where a task failed twice.

        Tasks start in their order, so the longest should come first. `on_progress` hears (done, total).

        Raises: RewardUnavailable if the workers cannot start.
        """
        results: list[Result | Exception] = []
        for pending in [self.submit(task) for task in tasks]:
            pending.wait(None)
            results.append(pending.result())
            if on_progress is not None:
                on_progress(len(results), len(tasks))
        return results

    def _schedule(self, task: Task) -> "Future[Any]":
        return self._hand_over(_run, task, self._timeout_s)

    def _schedule_together(self, tasks: Sequence[Any]) -> "Future[Any]":
        return self._hand_over(_run_together, tasks, self._timeout_s * len(tasks))

    def _hand_over(self, run: Callable[[Any], Any], work: Any, limit_s: float) -> "Future[Any]":
        with _STARTING:
            pool = self._running()
        try:
            return pool.schedule(run, args=(work,), timeout=limit_s)
        except RuntimeError as error:  # the pool broke between the look at it and the call
            failed: Future[Any] = Future()
            failed.set_exception(RewardUnavailable(f"the scoring processes died: {error}"))
            return failed

    def _running(self) -> ProcessPool:
        """The pool, started and known to answer; one that lost a worker while it had no task is made anew."""
        if self._is_closed:
            raise RewardUnavailable("the scoring processes have been ended")
        if self._pool is not None:
            if self._pool.active:
                return self._pool
            _end(self._pool)
            self._pool = None
        if self._places is None:
            descriptor, name = tempfile.mkstemp(prefix="elocution-places-")
            os.close(descriptor)
            self._places = Path(name)
        pool = ProcessPool(
            max_workers=self._workers,
            initializer=_start,
            initargs=(self._factories, self._places, self._workers),
            context=multiprocessing.get_context("spawn"),
        )
        try:
            with _environment(_ONE_THREAD):
                pool.schedule(_ping).result()
        except Exception as error:
            _end(pool)
            raise RewardUnavailable(f"the scoring processes cannot start: {error}") from error
        except BaseException:
            _end(pool)
            raise
        self._pool = pool
        return pool


class _Attempts(Generic[Result]):
    """A task at work. It is scheduled again, once, when it is seen to have failed."""

    def __init__(
        self, schedule: Callable[[], "Future[Any]"], again: Callable[[], "Future[Any]"], timeout_s: float
    ) -> None:
        self._again, self._timeout_s = again, timeout_s
        self._left = _ATTEMPTS - 1
        self._future = schedule()
        self._result: Result | Exception

    def wait(self, wait_s: float | None) -> bool:
        while True:
            wait([self._future], wait_s)
            if not self._future.done():
                return False
            self._result = _outcome(self._future, self._timeout_s)
            if not isinstance(self._result, Exception) or not self._left:
                return True
            self._left -= 1
            self._future = self._again()

    def result(self) -> Result | Exception:
        return self._result


def _end(pool: ProcessPool) -> None:
    pool.stop()  # type: ignore[no-untyped-call]
    pool.join()


@contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    """Sets environment variables, which child processes inherit, for as long as the context lasts."""
    saved = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in saved.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _start(factories: Sequence[Callable[[], Callable[[Any], Any]]], places: Path, count: int) -> None:
    """Runs in a worker before its first task; a factory that fails makes every task fail with its reason."""
    global _score
    # Ctrl-C, and a SIGTERM to the whole group as `timeout` sends it, are for the parent, which finishes its stage first.
    os.setsid()
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    limit = threading.Timer(_START_TIMEOUT_S, os._exit, (1,))
    limit.start()
    try:
        place = take_place(places, count, wait_s=_START_TIMEOUT_S / 2)
        _score = factories[place % len(factories)]()
    except Exception as error:  # reported as the result of each task, and so counted
        _score = partial(_refuse, f"{type(error).__name__}: {error}")
    finally:
        limit.cancel()


def _exit_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)


def _refuse(reason: str, task: Any) -> Any:
    raise RewardUnavailable(reason)


def _run(task: Any) -> Any:
    return _score(task)


def _run_together(tasks: Sequence[Any]) -> list[Any]:
    return list(_score.together(tasks)) if isinstance(_score, ScoresTogether) else [_score(task) for task in tasks]


def _ping() -> None:
    if isinstance(_score, partial) and _score.func is _refuse:
        _score(None)


def _outcome(future: "Future[Any]", timeout_s: float) -> Any:
    try:
        return future.result()
    except FutureTimeoutError:
        return RewardUnavailable(f"scoring took longer than {timeout_s:g} s")
    except ProcessExpired as error:
        return RewardUnavailable(f"the scoring process died with exit code {error.exitcode}")
    except Exception as error:  # a worker's failure of any kind is this clip's result, and is counted
        return error


def transcriber_factory(
    name: str, *, path: str = "", device: str = "cpu"
) -> Callable[[], Callable[[tuple[Audio, str]], str]]:
    """A picklable factory of what transcribes pairs of a clip and its language by the recogniser `name`.

    Raises: ConfigError if there is no such recogniser.
    """
    check_recognisers(transcriber=name)
    return partial(_Judge, name, path, device)


class _Judge:
    """A recogniser that hears clips one by one or together."""

    def __init__(self, name: str, path: str, device: str) -> None:
        self._transcriber = load_transcriber(name, path=path, device=device)

    def __call__(self, clip: tuple[Audio, str]) -> str:
        return self.together([clip])[0]

    def together(self, clips: Sequence[tuple[Audio, str]]) -> list[str]:
        return transcribe_together(self._transcriber, [audio for audio, _ in clips], [spoken for _, spoken in clips])
