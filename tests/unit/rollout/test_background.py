import asyncio
import threading
from collections.abc import Callable

import pytest

from elocution.rollout.background import results_of


def test_results_come_while_others_are_awaited() -> None:
    async def main(found: Callable[[int], None]) -> None:
        found(1)
        await asyncio.to_thread(taken.wait)
        found(2)

    taken = threading.Event()
    results = results_of(main)
    assert next(results) == 1
    taken.set()
    assert list(results) == [2]


def test_an_error_comes_after_the_results_before_it() -> None:
    async def main(found: Callable[[int], None]) -> None:
        found(1)
        raise ValueError("no more")

    results = results_of(main)
    assert next(results) == 1
    with pytest.raises(ValueError, match="no more"):
        next(results)


def test_closing_cancels_what_is_awaited_and_waits_for_its_end() -> None:
    async def main(found: Callable[[int], None]) -> None:
        try:
            found(1)
            await asyncio.sleep(3600)
        finally:
            ended.set()

    ended = threading.Event()
    results = results_of(main)
    assert next(results) == 1
    results.close()
    assert ended.is_set()
