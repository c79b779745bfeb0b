"""Tasks that wait are worked on together: scripted futures for the order, real processes for the failures."""

from collections.abc import Sequence
from concurrent.futures import Future
from queue import Queue
from typing import Any

import pytest

from elocution.errors import RewardUnavailable
from elocution.rewards.batches import Batches
from elocution.rewards.pool import ScoringPool


class Scheduled:
    """Futures that the test fulfils."""

    def __init__(self) -> None:
        self._batches: Queue[tuple[list[int], Future[Any]]] = Queue()

    def __call__(self, tasks: Sequence[Any]) -> "Future[Any]":
        future: Future[Any] = Future()
        self._batches.put((list(tasks), future))
        return future

    def next(self) -> tuple[list[int], "Future[Any]"]:
        """The next batch; batches after the first are handed over in a thread of their own."""
        return self._batches.get(timeout=10)


def test_a_free_worker_takes_a_task_at_once_and_a_busy_one_what_waits_by_then() -> None:
    scheduled = Scheduled()
    batches = Batches(scheduled, workers=2, size=3)
    results = [batches.submit(task) for task in range(7)]
    (first, zero), (second, _) = scheduled.next(), scheduled.next()
    assert (first, second) == ([0], [1])
    zero.set_result(["zero"])
    assert results[0].result(1) == "zero"
    third, failing = scheduled.next()
    assert third == [2, 3, 4]
    failing.set_exception(RuntimeError("out of memory"))
    for place in third:
        with pytest.raises(RuntimeError, match="out of memory"):
            results[place].result(1)
    fourth, cancelled = scheduled.next()
    assert fourth == [5, 6]
    cancelled.cancel()
    with pytest.raises(RewardUnavailable):
        results[6].result(1)
    assert not results[1].done()


def test_what_waits_when_all_ends_fails() -> None:
    batches = Batches(Scheduled(), workers=1, size=3)
    first, waiting = batches.submit(0), batches.submit(1)
    batches.close()
    assert not first.done()
    with pytest.raises(RewardUnavailable, match="ended"):
        waiting.result(1)


class Doubler:
    """Says how many tasks it was given at once; fails on all of them if one is 13."""

    def __call__(self, task: int) -> tuple[int, int]:
        return self.together([task])[0]

    def together(self, tasks: Sequence[int]) -> list[tuple[int, int]]:
        if 13 in tasks:
            raise RuntimeError("thirteen")
        return [(2 * task, len(tasks)) for task in tasks]


def test_s09_a_task_that_fails_spoils_none_of_its_batch() -> None:
    with ScoringPool[int, tuple[int, int]](Doubler, workers=1, batch_size=8) as pool:
        results = pool.map([*range(10, 20)])
        assert isinstance(results[3], RuntimeError)
        assert [one[0] for one in results if isinstance(one, tuple)] == [20, 22, 24, 28, 30, 32, 34, 36, 38]
        assert max(one[1] for one in pool.map([*range(100, 120)]) if isinstance(one, tuple)) == 8
