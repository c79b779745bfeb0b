"""Single tasks that arrive one by one -> small batches: a batch goes when it is full or its first task has waited enough.

Knows nothing of rewards.
"""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from functools import partial
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Any, Generic, TypeVar

__all__ = ["Coalescer"]

Task = TypeVar("Task")
Result = TypeVar("Result")


class Coalescer(Generic[Task, Result]):
    """Runs `work` on batches of at most `size` tasks in `executor`; a task waits at most `wait_s` seconds for company.

    `work` gives one result for each task, in order; what it raises becomes the error of each.
    """

    def __init__(
        self, work: Callable[[Sequence[Task]], Sequence[Result]], executor: Executor, *, size: int, wait_s: float
    ) -> None:
        self._work, self._executor, self._size, self._wait_s = work, executor, size, wait_s
        self._queue: SimpleQueue[tuple[Task, Future[Result]] | None] = SimpleQueue()
        self._submitting, self._is_closed = Lock(), False
        self._thread = Thread(target=self._collect, daemon=True, name="coalesce")
        self._thread.start()

    def submit(self, task: Task) -> "Future[Result]":
        """The result of `task`, once it is there; cancelled if the coalescer is closed before its batch goes."""
        future: Future[Result] = Future()
        with self._submitting:
            if self._is_closed:
                future.cancel()
            else:
                self._queue.put((task, future))
        return future

    def close(self) -> None:
        """Takes no further task and cancels those that no batch has."""
        with self._submitting:
            self._is_closed = True
            self._queue.put(None)
        self._thread.join()

    def _collect(self) -> None:
        while (first := self._queue.get()) is not None:
            batch, is_over = [first], False
            deadline = time.monotonic() + self._wait_s
            while len(batch) < self._size and not is_over:
                try:
                    item = self._queue.get(timeout=max(0.0, deadline - time.monotonic()))
                except Empty:
                    break
                if item is None:
                    is_over = True
                else:
                    batch.append(item)
            if self._is_closed:
                _cancel(batch)
            else:
                self._executor.submit(self._run, batch).add_done_callback(partial(_cancel_with, batch))
            if is_over:
                return
            del first, batch

    def _run(self, batch: Sequence[tuple[Task, "Future[Result]"]]) -> None:
        try:
            results = self._work([task for task, _ in batch])
            for (_, future), result in zip(batch, results, strict=True):
                future.set_result(result)
        except BaseException as error:  # raised again where the results are taken
            for _, future in batch:
                if not future.done():
                    future.set_exception(error)


def _cancel(batch: Sequence[tuple[Any, "Future[Any]"]]) -> None:
    for _, future in batch:
        future.cancel()


def _cancel_with(batch: Sequence[tuple[Any, "Future[Any]"]], done: "Future[None]") -> None:
    """An executor that ends drops the batches that it has not begun."""
    if done.cancelled():
        _cancel(batch)
