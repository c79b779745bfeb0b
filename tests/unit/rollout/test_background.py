import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext

import pytest

from elocution.rollout.background import results_of


def test_results_come_while_others_are_awaited() -> None:
    async def work(opened: None, found: Callable[[int], None]) -> None:
        found(1)
        await asyncio.to_thread(taken.wait)
        found(2)

    taken = threading.Event()
    results = results_of(nullcontext(), work)
    assert next(results) == 1
    taken.set()
    assert list(results) == [2]


def test_an_error_comes_after_the_results_before_it() -> None:
    async def work(opened: None, found: Callable[[int], None]) -> None:
        found(1)
        raise ValueError("no more")

    results = results_of(nullcontext(), work)
    assert next(results) == 1
    with pytest.raises(ValueError, match="no more"):
        next(results)


def test_closing_cancels_what_is_awaited_and_waits_for_its_end() -> None:
    async def work(opened: None, found: Callable[[int], None]) -> None:
        try:
            found(1)
            await asyncio.sleep(3600)
        finally:
            ended.set()

    ended = threading.Event()
    results = results_of(nullcontext(), work)
    assert next(results) == 1
    results.close()
    assert ended.is_set()


def test_a_resource_that_is_being_closed_when_the_caller_gives_up_is_closed_to_the_end() -> None:
    @asynccontextmanager
    async def resource() -> AsyncIterator[None]:
        yield
        is_closing.set()
        await asyncio.to_thread(is_given_up.wait)
        await asyncio.sleep(0)  # where a cancellation would strike
        is_closed.set()

    async def work(opened: None, found: Callable[[int], None]) -> None:
        found(1)

    is_closing, is_given_up, is_closed = threading.Event(), threading.Event(), threading.Event()
    results = results_of(resource(), work)
    assert next(results) == 1
    assert is_closing.wait(10)
    threading.Timer(0.05, is_given_up.set).start()  # `close` has asked for the end long before
    results.close()
    assert is_closed.is_set()
