"""Which of several servers to ask next: the least loaded one that is not shut out after failures.

Pure bookkeeping; sends nothing.
"""

import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

__all__ = ["Endpoints"]

_FAILURES_TO_OPEN = 3
_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 30.0


@dataclass
class _Endpoint:
    """A circuit breaker: open (asked nothing) until `open_until`, then one trial at a time until it succeeds."""

    url: str
    under_way: int = 0
    asked: int = 0
    failures: int = 0
    failing_since: float = 0.0
    open_until: float = 0.0

    def takes(self, now: float) -> bool:
        on_trial = self.failures >= _FAILURES_TO_OPEN
        return now >= self.open_until and not (on_trial and self.under_way)


class Endpoints:
    """Servers by URL; safe to use from several threads. `clock` gives seconds."""

    def __init__(self, urls: Sequence[str], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._endpoints = {url: _Endpoint(url) for url in urls}
        self._clock, self._lock = clock, threading.Lock()

    def take(self, avoid: Collection[str] = ()) -> str | None:
        """The URL with the fewest requests under way, one of `avoid` only if there is no other; None if all are shut
        out for now. Whoever takes one gives it back with `succeeded` or `failed`.
        """
        with self._lock:
            now = self._clock()
            open_ones = [one for one in self._endpoints.values() if one.takes(now)]
            if not open_ones:
                return None
            chosen = min(open_ones, key=lambda one: (one.url in avoid, one.under_way, one.asked))
            chosen.under_way += 1
            chosen.asked += 1
            return chosen.url

    def failing_for_s(self) -> float:
        """How long every server has failed without a success between, seconds; 0 if one has not."""
        with self._lock:
            now = self._clock()
            return min(now - one.failing_since if one.failures else 0.0 for one in self._endpoints.values())

    def succeeded(self, url: str) -> None:
        """The server answered: whatever failed before is forgotten."""
        with self._lock:
            endpoint = self._endpoints[url]
            endpoint.under_way -= 1
            endpoint.failures, endpoint.open_until = 0, 0.0

    def failed(self, url: str) -> None:
        """The server did not answer; after three failures in a row it is left alone for a time that doubles."""
        with self._lock:
            endpoint = self._endpoints[url]
            endpoint.under_way -= 1
            if not endpoint.failures:
                endpoint.failing_since = self._clock()
            endpoint.failures += 1
            extra = endpoint.failures - _FAILURES_TO_OPEN
            if extra >= 0:
                pause = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2.0 ** min(extra, 10))
                endpoint.open_until = self._clock() + pause
