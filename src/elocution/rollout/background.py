"""Coroutines for callers that know no event loop: they run in a thread of their own, and results come as they are there."""

import asyncio
import queue
import threading
from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass
from typing import Any, TypeVar

__all__ = ["results_of"]

Result = TypeVar("Result")


@dataclass(frozen=True)
class _End:
    error: BaseException | None


def results_of(main: Callable[[Callable[[Result], None]], Coroutine[Any, Any, None]]) -> Generator[Result]:
    """What `main` hands to the function that it is given, each as soon as it is handed over.

    It goes on while the caller is busy with a result. Closing the iterator cancels it, and waits until it has ended.

    Raises: what `main` raises, after the results that came before.
    """
    found: queue.SimpleQueue[Result | _End] = queue.SimpleQueue()
    loop = asyncio.new_event_loop()
    task = loop.create_task(main(found.put))

    def work() -> None:
        error: BaseException | None = None
        try:
            loop.run_until_complete(task)
        except asyncio.CancelledError:
            pass
        except BaseException as failure:  # raised in the caller's thread
            error = failure
        finally:
            loop.run_until_complete(loop.shutdown_asyncgens())
            found.put(_End(error))

    thread = threading.Thread(target=work, name="engine requests", daemon=True)
    thread.start()
    try:
        while not isinstance(result := found.get(), _End):
            yield result
        if result.error is not None:
            raise result.error
    finally:
        loop.call_soon_threadsafe(task.cancel)
        thread.join()
        loop.close()
