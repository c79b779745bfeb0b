"""Single items in, batches of like length to a function in threads, each item's own result back.

An item waits until its bucket is full or `max_delay_s` has passed and a thread is free; the bucket whose oldest item
has waited longest goes first. Knows nothing of speech.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Generic, TypeVar

__all__ = ["Batcher", "Busy"]

Item = TypeVar("Item")
Result = TypeVar("Result")


class Busy(Exception):
    """So many items wait that another one is refused."""


@dataclass
class _Waiting(Generic[Item, Result]):
    item: Item
    since: float
    result: asyncio.Future[Result]


class Batcher(Generic[Item, Result]):
    """Calls `run` with lists of at most `max_batch_size` items of one `bucket`, `concurrency` calls at a time.

    `run` gives one result for each item, in order; an exception of it is the result of each item of that batch.
    All methods belong to the thread of one event loop; `run` is called in others.
    """

    def __init__(
        self,
        run: Callable[[Sequence[Item]], Sequence[Result]],
        *,
        bucket: Callable[[Item], int],
        max_batch_size: int,
        max_delay_s: float,
        max_waiting: int,
        concurrency: int,
    ) -> None:
        self._run, self._bucket = run, bucket
        self._max_batch_size, self._max_delay_s, self._max_waiting = max_batch_size, max_delay_s, max_waiting
        self._buckets: dict[int, deque[_Waiting[Item, Result]]] = {}
        self._free = concurrency
        self._threads = ThreadPoolExecutor(concurrency, thread_name_prefix="batch")
        self._timer: asyncio.TimerHandle | None = None
        self._under_way: set[asyncio.Task[None]] = set()

    @property
    def num_waiting(self) -> int:
        """Items that are in no batch yet."""
        return sum(len(bucket) for bucket in self._buckets.values())

    def submit(self, item: Item) -> asyncio.Future[Result]:
        """Queues `item`; the future holds its result.

        Raises: Busy if `max_waiting` items wait already.
        """
        if self.num_waiting >= self._max_waiting:
            raise Busy(f"{self.num_waiting} clips wait already")
        loop = asyncio.get_running_loop()
        waiting: _Waiting[Item, Result] = _Waiting(item, loop.time(), loop.create_future())
        self._buckets.setdefault(self._bucket(item), deque()).append(waiting)
        self._dispatch()
        return waiting.result

    def close(self) -> None:
        """Takes no further batch; does not wait for those that are under way."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _dispatch(self) -> None:
        """Starts every batch that is due and for which a thread is free; else sees to it that it is called again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        loop = asyncio.get_running_loop()
        while self._free and self._buckets:
            # A full bucket counts as one that has waited long enough.
            due, key = min((self._due(bucket), key) for key, bucket in self._buckets.items())
            if due > loop.time():
                self._timer = loop.call_at(due, self._dispatch)
                return
            bucket = self._buckets[key]
            batch = [bucket.popleft() for _ in range(min(len(bucket), self._max_batch_size))]
            if not bucket:
                del self._buckets[key]
            self._free -= 1
            task = loop.create_task(self._execute(batch))
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)

    def _due(self, bucket: deque[_Waiting[Item, Result]]) -> float:
        since = bucket[0].since
        return since if len(bucket) >= self._max_batch_size else since + self._max_delay_s

    async def _execute(self, batch: list[_Waiting[Item, Result]]) -> None:
        loop = asyncio.get_running_loop()
        try:
            results = await loop.run_in_executor(self._threads, self._run, [waiting.item for waiting in batch])
            pairs = list(zip(batch, results, strict=True))
        except Exception as error:  # whatever fails in a batch is the answer to each of its items
            for waiting in batch:
                if not waiting.result.cancelled():
                    waiting.result.set_exception(error)
        else:
            for waiting, result in pairs:
                if not waiting.result.cancelled():
                    waiting.result.set_result(result)
        finally:
            self._free += 1
            self._dispatch()
