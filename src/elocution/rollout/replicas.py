"""Several servers that hold the same weights: least-loaded dispatch, bounded retries, and no answer of other weights.

A server that restarts comes back with the weights that it was launched with. Each server therefore has an epoch, which
grows whenever its weights had to be loaded again or it was given up; an answer counts only if the epoch did not change from before the
question until the server was looked at after the answer. Knows no engine's protocol.
"""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, TypeVar

from elocution.errors import EngineError, EngineUnavailable
from elocution.rollout.json_client import JsonClient, LateAnswer
from elocution.rollout.launch import Server

__all__ = ["Job", "Replica", "Replicas", "in_threads"]

logger = logging.getLogger(__name__)

Result = TypeVar("Result")
_BACKOFF_S = 0.5


@dataclass
class Replica:
    """One server and what is known of it."""

    server: Server
    client: JsonClient
    load: int = 0
    epoch: int = 0
    is_down: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)


@dataclass(frozen=True)
class Job(Generic[Result]):
    """Something to ask any one of the servers."""

    ask: Callable[[JsonClient], Result]


class Replicas:
    """`restore(client)` makes sure that a server holds the wanted weights, and returns whether it had to load them.

    `counts` says how often something had to be done again: `retries`, of them `late` ones, `reloads` of a server that
    had lost its weights, `stale` answers that were thrown away.
    """

    def __init__(
        self,
        servers: Sequence[Server],
        restore: Callable[[JsonClient], bool],
        *,
        timeout_s: float,
        retries: int,
        max_in_flight: int,
        backoff_s: float = _BACKOFF_S,
    ) -> None:
        """`timeout_s` bounds each answer; `max_in_flight` is the number of questions that one server may have open."""
        self._replicas = [Replica(server, JsonClient(server.url, timeout_s=timeout_s)) for server in servers]
        self._restore, self._retries = restore, retries
        self._max_in_flight, self._backoff_s = max_in_flight, backoff_s
        self._lock = threading.Lock()
        self._last_failure: EngineError | None = None
        self.counts: Counter[str] = Counter()

    def start(self) -> None:
        """Returns once every server answers; if one does not, all that are ours are stopped.

        Raises: EngineUnavailable.
        """
        try:
            in_threads([replica.server.start for replica in self._replicas])
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Ends the servers that are ours; may be called twice."""
        for replica in self._replicas:
            replica.client.close()
        in_threads([replica.server.stop for replica in self._replicas])

    def each(self, action: Callable[[JsonClient], Result]) -> list[Result]:
        """What `action` returns for every server that is up, in order."""
        return in_threads([partial(action, replica.client) for replica in self._up()])

    def restore(self) -> None:
        """Every server holds the wanted weights after this, or is left out from now on until it does.

        Raises: EngineError if a server refuses the weights; EngineUnavailable if no server is left.
        """
        in_threads([partial(self._bring_back, replica) for replica in self._replicas])
        self._up()

    def restart(self) -> None:
        """Ends the servers that are ours and starts them anew; the others are waited for. They hold no wanted weights then.

        Raises: EngineUnavailable.
        """
        in_threads([replica.server.stop for replica in self._replicas])
        in_threads([replica.server.start for replica in self._replicas])

    def run(self, jobs: Sequence[Job[Result]]) -> Iterator[tuple[int, Result]]:
        """The number of each job and its result as soon as it is there; all were computed with the wanted weights.

        Jobs not begun are left out if the iterator is closed; those that are open are waited for.

        Raises: EngineUnavailable if a job failed more often than retries allow, or no server is left; EngineError if
        a server refuses a job.
        """
        self._check_weights()
        if not jobs:
            return
        with ThreadPoolExecutor(min(self._max_in_flight * len(self._replicas), len(jobs))) as pool:
            futures = {pool.submit(self._answer, job): index for index, job in enumerate(jobs)}
            try:
                for future in as_completed(futures):
                    yield futures[future], future.result()
            finally:
                for future in futures:
                    future.cancel()

    def _answer(self, job: Job[Result]) -> Result:
        for _ in range(self._retries + 1):
            result, replica, epoch = self._ask(job)
            self._count("reloads", self._bring_back(replica))
            if replica.epoch == epoch:
                return result
            self._count("stale")
        raise EngineUnavailable(
            f"the servers lost their weights in each of {self._retries + 1} attempts to answer; see their logs"
        )

    def _check_weights(self) -> None:
        """As `restore`, with the servers that had lost their weights counted."""
        loaded = in_threads([partial(self._bring_back, replica) for replica in self._replicas])
        self._up()
        self._count("reloads", sum(loaded))

    def _ask(self, job: Job[Result]) -> tuple[Result, Replica, int]:
        last: EngineError | None = None
        for attempt in range(self._retries + 1):
            replica = self._take()
            epoch = replica.epoch
            try:
                return job.ask(replica.client), replica, epoch
            except EngineError as error:
                last = error
            finally:
                with self._lock:
                    replica.load -= 1
            if not isinstance(last, EngineUnavailable):
                # A server that has restarted may refuse what it would have answered with the wanted weights.
                if not self._bring_back(replica):
                    raise last
                self._count("reloads")
            elif attempt < self._retries:
                self._count("retries")
                if isinstance(last, LateAnswer):
                    self._count("late")
                logger.warning("attempt %d of %d failed: %s", attempt + 1, self._retries + 1, last)
                time.sleep(self._backoff_s * 2**attempt)
                self._count("reloads", self._bring_back(replica))
        raise EngineUnavailable(f"no answer in {self._retries + 1} attempts, the last: {last}") from last

    def _bring_back(self, replica: Replica) -> bool:
        """Makes `replica` answer with the wanted weights, or marks it as down; whether weights had to be loaded."""
        with replica.lock:
            try:
                try:
                    is_loaded = self._restore(replica.client)
                except EngineUnavailable as error:
                    if replica.is_down:  # it was given its time once; now only a look whether it is back
                        return False
                    logger.warning("%s", error)
                    replica.server.revive()
                    is_loaded = self._restore(replica.client)
            except EngineUnavailable as error:
                logger.warning("left out from now on: %s", error)
                replica.is_down, self._last_failure = True, error
                replica.epoch += 1  # nobody can tell any more with which weights it answered
                return False
            replica.is_down = False
            if is_loaded:
                replica.epoch += 1
            return is_loaded

    def _take(self) -> Replica:
        """The server with the fewest open questions, now one more."""
        with self._lock:
            chosen = min(self._up(), key=lambda replica: replica.load)
            chosen.load += 1
            return chosen

    def _up(self) -> list[Replica]:
        up = [replica for replica in self._replicas if not replica.is_down]
        if not up:
            raise EngineUnavailable(
                f"no server is left of {len(self._replicas)}; the last failure: {self._last_failure}"
            )
        return up

    def _count(self, what: str, number: int = 1) -> None:
        with self._lock:
            self.counts[what] += number


def in_threads(actions: Sequence[Callable[[], Result]], threads: int = 64) -> list[Result]:
    """Runs all at once and waits for all; raises the first error, with those not begun left out."""
    if not actions:
        return []
    with ThreadPoolExecutor(min(threads, len(actions))) as pool:
        futures = [pool.submit(action) for action in actions]
        try:
            return [future.result() for future in futures]
        finally:
            for future in futures:
                future.cancel()
