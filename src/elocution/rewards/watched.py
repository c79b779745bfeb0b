"""A reward in a thread of its own, so that one that hangs ends in an error and not in a run that stands still."""

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from queue import SimpleQueue
from threading import Lock, Thread
from time import monotonic
from types import TracebackType
from typing import Any, Self, TypeVar

from elocution.errors import ConfigError, ElocutionError, RewardError, RewardUnavailable
from elocution.registry import build_part, describe_failure
from elocution.rewards.base import Pending, Reward, StreamingReward, score_all, start_scoring
from elocution.rewards.state import CheckedState
from elocution.types import Rollout, Score

__all__ = ["WatchedReward", "WatchedStreamingReward"]

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

_CLOSING_S = 30.0


class WatchedReward:
    """The reward that `build` makes, with `limit_s` seconds for each of building, starting and scoring.

    All of it happens in one thread, because what a reward opens may belong to the thread that opened it. A thread
    that hangs is left behind; it ends with the process.

    Raises: ConfigError if the reward cannot be built; RewardUnavailable if that takes longer than `limit_s`.
    """

    def __init__(self, name: str, build: Callable[[], Reward], *, limit_s: float) -> None:
        self._name, self._limit_s = name, limit_s
        self._thread = _Thread()
        try:
            self._reward = self._call("being built", lambda: build_part("reward", name, build))
        except BaseException:
            self._thread.end()
            raise

    def __enter__(self) -> Self:
        """Raises: RewardUnavailable if the reward cannot start."""
        try:
            entered = self._call("starting", self._reward.__enter__)
        except ElocutionError:
            raise
        except (Exception, SystemExit) as error:  # the user's class may fail in any way
            raise RewardUnavailable(f"cannot start the reward {self._name!r}: {describe_failure(error)}") from error
        if not callable(entered):
            raise ConfigError(f"{self._name!r} cannot be a reward: its __enter__ gives {entered!r:.80}, not the reward")
        self._reward = entered
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Raises: RewardError if the reward cannot end, unless another error is on its way."""
        # A thread that is still at work cannot be asked, but what it waits for may end.
        thread = _Thread() if self._thread.is_busy else self._thread
        try:
            thread.call(lambda: self._reward.__exit__(kind, error, trace), _CLOSING_S)
        except (Exception, SystemExit) as failure:  # the user's class may fail in any way
            stuck = isinstance(failure, _NoAnswer)
            cause = f"no answer for {_CLOSING_S:g} s" if stuck else describe_failure(failure)
            reason = f"the reward {self._name!r} failed to end: {cause}"
            if error is None:
                raise RewardError(reason) from failure
            logger.warning("%s", reason)
        finally:
            thread.end()
            self._thread.end()

    def __call__(self, rollouts: Sequence[Rollout]) -> list[Score]:
        """Raises: RewardError if the reward breaks its contract; RewardUnavailable if it takes longer than it may."""
        return self._call(f"scoring {len(rollouts)} completions", lambda: score_all(self._reward, rollouts))

    @property
    def state(self) -> CheckedState:
        """What the reward carries from step to step. It runs in the thread that asks, or it would wait for scoring."""
        return CheckedState(self._reward)

    def _call(self, activity: str, work: Callable[[], Result]) -> Result:
        if self._thread.has_ended:
            raise RewardError(
                f"the reward {self._name!r} has ended; it must be entered before it scores, and only once"
            )
        try:
            return self._thread.call(work, self._limit_s)
        except _NoAnswer as error:
            raise RewardUnavailable(
                f"the reward {self._name!r} is still {activity} after {self._limit_s:g} s; "
                "raise reward.call_timeout_s if it is not stuck but slow"
            ) from error


class WatchedStreamingReward(WatchedReward):
    """A `WatchedReward` whose reward can begin with one completion; it begins in the reward's own thread."""

    def start(self, rollout: Rollout) -> Pending[Score]:
        """Raises: RewardError if the reward fails; RewardUnavailable if it takes longer than it may to begin."""
        reward = self._reward
        if not isinstance(reward, StreamingReward):
            raise RewardError(f"the reward {self._name!r} began as one that can score a single completion, and cannot")
        pending = self._call("starting to score a completion", lambda: start_scoring(reward, rollout))
        return _Limited(pending, self._name, self._limit_s)


class _Limited:
    """A pending score that may take `limit_s` seconds."""

    def __init__(self, pending: Pending[Score], name: str, limit_s: float) -> None:
        self._pending, self._name, self._limit_s = pending, name, limit_s
        self._deadline = monotonic() + limit_s

    def wait(self, wait_s: float | None) -> bool:
        """Raises: RewardUnavailable if the score is not there in time."""
        left = self._deadline - monotonic()
        if self._pending.wait(max(0.0, left if wait_s is None else min(wait_s, left))):
            return True
        if wait_s is None or monotonic() >= self._deadline:
            raise RewardUnavailable(
                f"the reward {self._name!r} is still scoring a completion after {self._limit_s:g} s; "
                "raise reward.call_timeout_s if it is not stuck but slow"
            )
        return False

    def result(self) -> Score:
        return self._pending.result()


class _NoAnswer(Exception):
    """A time limit is over; not TimeoutError, which the work itself may raise."""


class _Thread:
    """Does what it is asked to, one thing after the other; a process does not wait for it to end."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._last: Future[Any] | None = None
        self._turn = Lock()
        self.has_ended = False
        self._thread = Thread(target=self._run, daemon=True, name="reward")
        self._thread.start()

    @property
    def is_busy(self) -> bool:
        return self._last is not None and not self._last.done()

    def call(self, work: Callable[[], Result], limit_s: float) -> Result:
        """The result of `work`, or its error; _NoAnswer if there is neither `limit_s` seconds after its turn came."""
        future: Future[Result] = Future()
        with self._turn:
            self._last = future
            self._jobs.put((future, work))
            wait([future], limit_s)
        if not future.done():
            raise _NoAnswer
        return future.result()

    def end(self) -> None:
        """Returns when the thread has ended; one that is still at work is left behind."""
        self.has_ended = True
        self._jobs.put(None)
        if not self.is_busy:
            self._thread.join()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            future, work = job
            try:
                future.set_result(work())
            except BaseException as error:  # raised again in the thread that asked
                future.set_exception(error)
            del job, future, work  # they hold a step's audio
