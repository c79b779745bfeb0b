"""What a reward must do: rollouts in, one score each out."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Generic, Protocol, Self, TypeVar, runtime_checkable

from elocution.errors import ElocutionError, RewardError
from elocution.registry import describe_failure
from elocution.types import Rollout, Score

__all__ = [
    "FLOOR",
    "Derived",
    "Known",
    "Pending",
    "Reward",
    "StreamingReward",
    "check_scores_of",
    "naming",
    "score_all",
    "start_scoring",
]

Found = TypeVar("Found")
Result = TypeVar("Result", covariant=True)

FLOOR = 0.0
"""Value of a completion that cannot be listened to through the policy's own fault."""


class Reward(Protocol):
    """Scores rollouts in their order; a context manager, because scorers may live in other processes.

    A rollout that holds no speech gets `FLOOR` without being listened to; one whose scorer failed gets a score
    without a value, never a number.
    """

    def __call__(self, rollouts: Sequence[Rollout]) -> list[Score]: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Pending(Protocol[Result]):
    """Something that is being worked on elsewhere."""

    def wait(self, wait_s: float | None) -> bool:
        """Whether the result is there, waiting at most `wait_s` seconds for it; without a limit if None."""

    def result(self) -> Result:
        """The result, once `wait` has said that it is there."""


class Known(Generic[Result]):
    """A result that nothing has to be waited for."""

    def __init__(self, result: Result) -> None:
        self._result = result

    def wait(self, wait_s: float | None) -> bool:
        return True

    def result(self) -> Result:
        return self._result


class Derived(Generic[Found, Result]):
    """What a function makes of a pending value, once it is there."""

    def __init__(self, pending: Pending[Found], make: Callable[[Found], Result]) -> None:
        self._pending, self._make = pending, make

    def wait(self, wait_s: float | None) -> bool:
        return self._pending.wait(wait_s)

    def result(self) -> Result:
        return self._make(self._pending.result())


@runtime_checkable
class StreamingReward(Reward, Protocol):
    """A reward that judges each rollout by itself, so that it can begin with one before the others are there."""

    def start(self, rollout: Rollout) -> Pending[Score]:
        """Begins to score `rollout`, and returns without waiting for that."""


def score_all(reward: Reward, rollouts: Sequence[Rollout]) -> list[Score]:
    """The scores of `rollouts`, from a reward that is not trusted to keep its word.

    Raises: RewardError if the reward fails, or does not give one `Score` for each rollout.
    """
    with naming(reward):
        scores = list(reward(rollouts))
    check_scores_of(reward, scores, len(rollouts))
    return scores


def start_scoring(reward: StreamingReward, rollout: Rollout) -> Pending[Score]:
    """What `reward` makes of `rollout`, without trust in it: `result` checks what it gives.

    Raises: RewardError if the reward fails.
    """
    with naming(reward):
        return _Checked(reward, reward.start(rollout))


class _Checked:
    """A pending score from a reward that is not trusted to keep its word."""

    def __init__(self, reward: StreamingReward, pending: Pending[Score]) -> None:
        self._reward, self._pending = reward, pending

    def wait(self, wait_s: float | None) -> bool:
        with naming(self._reward):
            return self._pending.wait(wait_s)

    def result(self) -> Score:
        with naming(self._reward):
            score = self._pending.result()
        _check_score(self._reward, score)
        return score


def check_scores_of(reward: Reward, scores: Sequence[object], count: int) -> None:
    """Raises: RewardError if `reward` did not give one `Score` for each of `count` completions."""
    if len(scores) != count:
        raise RewardError(f"the reward {_name(reward)} gave {len(scores)} scores for {count} completions")
    for score in scores:
        _check_score(reward, score)


@contextmanager
def naming(reward: Reward) -> Iterator[None]:
    """Makes any failure of the user's class an error that names it."""
    try:
        yield
    except ElocutionError:
        raise
    except (Exception, SystemExit) as error:  # the user's class may fail in any way
        raise RewardError(f"the reward {_name(reward)} failed: {describe_failure(error)}") from error


def _check_score(reward: Reward, score: object) -> None:
    if not isinstance(score, Score):
        raise RewardError(f"the reward {_name(reward)} gave {score!r:.80}, expected elocution.types.Score")


def _name(reward: Reward) -> str:
    return f"{type(reward).__module__}:{type(reward).__qualname__}"
