"""Coroutines for callers that know no event loop: they run in a thread of their own, and results come as they are there."""

import asyncio
import queue
import threading
from collections.abc import Callable, Coroutine, Generator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, TypeVar

__all__ = ["results_of"]

Opened = TypeVar("Opened")
Result = TypeVar("Result")


@dataclass(frozen=True)
class _End:
    error: BaseException | None


def results_of(
    resource: AbstractAsyncContextManager[Opened],
    work: Callable[[Opened, Callable[[Result], None]], Coroutine[Any, Any, None]],
) -> Generator[Result]:
    """What `work` hands to the function that it is given, each as soon as it is handed over; it is given `resource`, open.

    It goes on while the caller is busy with a result. Closing the iterator cancels `work`, and waits until the resource is
    closed. That is never cancelled: a client that is closing its connections would leave the rest of them open.

    Raises: what `work` raises, after the results that came before.
    """
    found: queue.SimpleQueue[Result | _End] = queue.SimpleQueue()
    loop = asyncio.new_event_loop()
    given_up = asyncio.Event()

    async def until_done_or_given_up() -> None:
        async with resource as opened:
            working = asyncio.ensure_future(work(opened, found.put))
            giving_up = asyncio.ensure_future(given_up.wait())
            await asyncio.wait([working, giving_up], return_when=asyncio.FIRST_COMPLETED)
            working.cancel()
            giving_up.cancel()
            await asyncio.wait([working, giving_up])
            if not working.cancelled():
                working.result()

    def run() -> None:
        error: BaseException | None = None
        try:
            loop.run_until_complete(until_done_or_given_up())
        except BaseException as failure:  # raised in the caller's thread
            error = failure
        finally:
            loop.run_until_complete(loop.shutdown_asyncgens())
            found.put(_End(error))

    thread = threading.Thread(target=run, name="engine requests", daemon=True)
    thread.start()
    try:
        while not isinstance(result := found.get(), _End):
            yield result
        if result.error is not None:
            raise result.error
    finally:
        loop.call_soon_threadsafe(given_up.set)
        thread.join()
        loop.close()
