"""Tasks that wait while all workers are busy, handed to the next free one together."""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from functools import partial
from typing import Any

from elocution.errors import RewardUnavailable

__all__ = ["Batches"]


class Batches:
    """Gives tasks to `schedule`, at most `size` at once and to at most `workers` at the same time, and their results back.

    `schedule` takes a list of tasks and answers with a future of the list of their results. A task never waits while a
    worker is free, so a batch is as large as the load makes it.
    """

    def __init__(self, schedule: Callable[[Sequence[Any]], "Future[Any]"], *, workers: int, size: int) -> None:
        self._schedule, self._free, self._size = schedule, workers, size
        self._waiting: deque[tuple[Any, Future[Any]]] = deque()
        self._lock = threading.Lock()

    def submit(self, task: Any) -> "Future[Any]":
        """The result that `task` will have; an error of its batch is that of each task in it."""
        result: Future[Any] = Future()
        with self._lock:
            self._waiting.append((task, result))
        self._feed()
        return result

    def close(self) -> None:
        """Fails what waits."""
        with self._lock:
            left, self._waiting = list(self._waiting), deque()
        for _, result in left:
            result.set_exception(RewardUnavailable("the scoring processes have been ended"))

    def _feed(self) -> None:
        while True:
            with self._lock:
                if not self._free or not self._waiting:
                    return
                self._free -= 1
                count = min(self._size, len(self._waiting))
                batch = [self._waiting.popleft() for _ in range(count)]
            try:
                scheduled = self._schedule([task for task, _ in batch])
            except Exception as error:  # what kept the batch from being scheduled is the result of each task in it
                scheduled = Future()
                scheduled.set_exception(error)
            scheduled.add_done_callback(partial(self._give, [result for _, result in batch]))

    def _give(self, results: Sequence["Future[Any]"], done: "Future[Any]") -> None:
        if done.cancelled():
            error: BaseException | None = RewardUnavailable("the scoring processes have been ended")
        else:
            error = done.exception()
        for place, result in enumerate(results):
            try:
                if error is not None:
                    result.set_exception(error)
                else:
                    result.set_result(done.result()[place])
            except InvalidStateError:  # its waiter has given up
                continue
        with self._lock:
            self._free += 1
            is_done = not self._waiting
        if not is_done:
            # Not in this thread: it is one of the pool's, which may have to be ended and made anew.
            threading.Thread(target=self._feed, daemon=True).start()
