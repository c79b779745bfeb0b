"""Batches of tasks that come one by one: full ones at once, others after a bounded wait, every task with an end."""

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor

import pytest

from elocution.rewards.coalesce import Coalescer


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as threads:
        yield threads


def test_every_task_has_its_own_result_and_no_batch_is_too_large(executor: ThreadPoolExecutor) -> None:
    batches = list[list[int]]()

    def double(tasks: Sequence[int]) -> list[int]:
        batches.append(list(tasks))
        return [2 * task for task in tasks]

    coalescer = Coalescer(double, executor, size=4, wait_s=0.2)
    futures = [coalescer.submit(number) for number in range(10)]
    assert [future.result(20) for future in futures] == [2 * number for number in range(10)]
    coalescer.close()
    assert sorted(map(len, batches)) == [2, 4, 4]


def test_a_batch_that_fails_is_the_error_of_each_task(executor: ThreadPoolExecutor) -> None:
    def fail(tasks: Sequence[int]) -> list[int]:
        raise KeyError("down")

    coalescer = Coalescer(fail, executor, size=2, wait_s=10.0)
    futures = [coalescer.submit(number) for number in range(2)]
    for future in futures:
        with pytest.raises(KeyError, match="down"):
            future.result(20)
    coalescer.close()


def test_what_waits_when_it_ends_is_cancelled_and_what_comes_later_too(executor: ThreadPoolExecutor) -> None:
    coalescer = Coalescer(list, executor, size=8, wait_s=600.0)
    waiting = coalescer.submit(1)
    coalescer.close()
    for future in (waiting, coalescer.submit(2)):
        with pytest.raises(CancelledError):
            future.result(20)


def test_a_batch_that_its_executor_drops_is_cancelled() -> None:
    has_begun, busy = threading.Event(), threading.Event()

    def work(tasks: Sequence[int]) -> list[bool]:
        has_begun.set()
        return [busy.wait(20) for _ in tasks]

    threads = ThreadPoolExecutor(1)
    coalescer = Coalescer(work, threads, size=1, wait_s=0.0)
    begun = coalescer.submit(1)
    has_begun.wait(20)
    dropped = coalescer.submit(2)
    while threads._work_queue.empty():  # nothing else says that the batch has been handed over
        time.sleep(0.01)
    coalescer.close()
    threads.shutdown(wait=False, cancel_futures=True)
    busy.set()
    assert begun.result(20) is True
    with pytest.raises(CancelledError):
        dropped.result(20)
