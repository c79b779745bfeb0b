"""Batches: full or late, of like items, each result back to its own item."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from elocution.serve.batching import Batcher, Busy


class Recorder:
    """Doubles numbers and keeps the batches it saw; `hold` keeps it from answering."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.hold: threading.Event | None = None
        self.most_at_once = self._now = 0

    def __call__(self, items: Sequence[int]) -> list[int]:
        self.batches.append(list(items))
        self._now += 1
        self.most_at_once = max(self.most_at_once, self._now)
        if self.hold is not None:
            assert self.hold.wait(10)
        self._now -= 1
        if 13 in items:
            raise ValueError("no thirteen")
        return [2 * item for item in items]


def _batcher(run: Callable[[Sequence[int]], Any], **settings: Any) -> Batcher[int, int]:
    defaults: dict[str, Any] = {
        "bucket": lambda item: item // 100,
        "max_batch_size": 4,
        "max_delay_s": 0.05,
        "max_waiting": 100,
        "concurrency": 1,
    }
    return Batcher(run, **(defaults | settings))


def test_each_item_gets_its_own_result() -> None:
    async def check() -> list[int]:
        batcher = _batcher(Recorder())
        return await asyncio.gather(*(batcher.submit(item) for item in range(20, 12 + 20)))

    assert asyncio.run(check()) == [2 * item for item in range(20, 32)]


def test_a_full_bucket_goes_at_once_and_the_rest_after_the_delay() -> None:
    async def check() -> tuple[list[list[int]], float]:
        run = Recorder()
        batcher = _batcher(run, max_delay_s=0.2, concurrency=2)
        loop = asyncio.get_running_loop()
        started = loop.time()
        futures = [batcher.submit(item) for item in range(5)]
        await asyncio.gather(*futures[:4])
        assert run.batches == [[0, 1, 2, 3]]
        await futures[4]
        return run.batches, loop.time() - started

    batches, seconds = asyncio.run(check())
    assert batches == [[0, 1, 2, 3], [4]]
    assert seconds >= 0.2


def test_items_of_unlike_length_share_no_batch() -> None:
    async def check() -> list[list[int]]:
        run = Recorder()
        batcher = _batcher(run)
        await asyncio.gather(*(batcher.submit(item) for item in (1, 101, 2, 102, 3)))
        return run.batches

    assert sorted(asyncio.run(check())) == [[1, 2, 3], [101, 102]]


def test_the_bucket_that_waits_longest_goes_first() -> None:
    async def check() -> list[list[int]]:
        run = Recorder()
        run.hold = threading.Event()
        batcher = _batcher(run, max_delay_s=0.0)
        futures = [batcher.submit(item) for item in (1, 101, 2, 3)]
        run.hold.set()
        await asyncio.gather(*futures)
        return run.batches

    assert asyncio.run(check()) == [[1], [101], [2, 3]]


@pytest.mark.parametrize("concurrency", [1, 3])
def test_no_more_batches_run_at_once_than_allowed(concurrency: int) -> None:
    async def check() -> int:
        run = Recorder()
        run.hold = threading.Event()
        batcher = _batcher(run, max_batch_size=1, concurrency=concurrency)
        futures = [batcher.submit(item) for item in range(6)]
        while len(run.batches) < concurrency:
            await asyncio.sleep(0.01)
        run.hold.set()
        await asyncio.gather(*futures)
        return run.most_at_once

    assert asyncio.run(check()) == concurrency


def test_too_many_items_are_refused_and_the_others_answered() -> None:
    async def check() -> list[int]:
        run = Recorder()
        run.hold = threading.Event()
        batcher = _batcher(run, max_waiting=2, max_delay_s=0.0)
        futures = [batcher.submit(item) for item in (1, 2, 3)]  # the first one is under way
        assert batcher.num_waiting == 2
        with pytest.raises(Busy, match="2 clips wait already"):
            batcher.submit(4)
        run.hold.set()
        return await asyncio.gather(*futures)

    assert asyncio.run(check()) == [2, 4, 6]


def test_an_error_is_the_answer_to_its_batch_only() -> None:
    async def check() -> list[Any]:
        batcher = _batcher(Recorder(), max_batch_size=2)
        return await asyncio.gather(*(batcher.submit(item) for item in (1, 2, 13, 4, 5)), return_exceptions=True)

    one, two, *failed, five = asyncio.run(check())
    assert (one, two, five) == (2, 4, 10)
    assert all(isinstance(error, ValueError) for error in failed)


def test_a_wrong_number_of_results_is_an_error() -> None:
    async def check() -> list[Any]:
        batcher = _batcher(lambda items: items[1:])
        return await asyncio.gather(*(batcher.submit(item) for item in (1, 2)), return_exceptions=True)

    assert all(isinstance(error, ValueError) for error in asyncio.run(check()))


def test_an_item_nobody_waits_for_any_more_disturbs_nothing() -> None:
    async def check() -> int:
        batcher = _batcher(Recorder())
        gone, kept = batcher.submit(1), batcher.submit(2)
        gone.cancel()
        return await kept

    assert asyncio.run(check()) == 4
