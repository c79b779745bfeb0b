"""What a reward must do: rollouts in, one score each out."""

from collections.abc import Sequence
from types import TracebackType
from typing import Protocol, Self

from elocution.types import Rollout, Score

__all__ = ["FLOOR", "Reward"]

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
