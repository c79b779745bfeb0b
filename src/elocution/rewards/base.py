"""What a reward must do: rollouts in, one score each out."""

from collections.abc import Sequence
from types import TracebackType
from typing import Protocol, Self

from elocution.errors import ElocutionError, RewardError
from elocution.registry import describe_failure
from elocution.types import Rollout, Score

__all__ = ["FLOOR", "Reward", "score_all"]

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


def score_all(reward: Reward, rollouts: Sequence[Rollout]) -> list[Score]:
    """The scores of `rollouts`, from a reward that is not trusted to keep its word.

    Raises: RewardError if the reward fails, or does not give one `Score` for each rollout.
    """
    name = f"{type(reward).__module__}:{type(reward).__qualname__}"
    try:
        scores = list(reward(rollouts))
    except ElocutionError:
        raise
    except (Exception, SystemExit) as error:  # the user's class may fail in any way
        raise RewardError(f"the reward {name} failed: {describe_failure(error)}") from error
    if len(scores) != len(rollouts):
        raise RewardError(f"the reward {name} gave {len(scores)} scores for {len(rollouts)} completions")
    wrong = next((score for score in scores if not isinstance(score, Score)), None)
    if wrong is not None:
        raise RewardError(f"the reward {name} gave {wrong!r:.80}, expected elocution.types.Score")
    return scores
