"""What a reward may carry from step to step, so that a resumed run goes on with it. Optional; most rewards carry nothing.

Completions are scored ahead of the learner and in any order, so scoring must not depend on it. State enters in two
calls a step, in the order of the steps: what the scores are worth now, and what is learnt from them.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from elocution.errors import CheckpointError, RewardError
from elocution.rewards.base import Reward, check_scores_of, naming
from elocution.types import Score

__all__ = ["CheckedState", "RewardState", "StatefulReward"]


class RewardState(Protocol):
    """Called from the thread of the loop, while later completions may be scored in others."""

    def revalue(self, scores: Sequence[Score]) -> list[Score]:
        """The scores of a step with the values that they have now, in order; changes nothing.

        May be called several times for one step. A score without a value stays one.
        """

    def advance(self, scores: Sequence[Score]) -> Mapping[str, float]:
        """Learns from the scores of a finished step, as `revalue` gave them; returns metrics of that step."""

    def state_dict(self) -> Mapping[str, Any]:
        """All that JSON needs to hold for `load_state_dict` to restore the state exactly."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what `state_dict` gave."""


@runtime_checkable
class StatefulReward(Reward, Protocol):
    """A reward whose values depend on the steps before."""

    @property
    def state(self) -> RewardState: ...


class CheckedState:
    """The state of a reward that is not trusted to keep its word; of one that has none, the state that does nothing.

    Every method raises RewardError if the reward's own fails.
    """

    def __init__(self, reward: Reward) -> None:
        self._reward = reward
        self._state = reward.state if isinstance(reward, StatefulReward) else None

    def revalue(self, scores: Sequence[Score]) -> list[Score]:
        """Raises: RewardError if there is not one `Score` for each, or one has a value that had none."""
        if self._state is None:
            return list(scores)
        with naming(self._reward):
            found = list(self._state.revalue(scores))
        check_scores_of(self._reward, found, len(scores))
        if any((one.value is None) != (other.value is None) for one, other in zip(scores, found, strict=True)):
            raise RewardError("the state of the reward gave a value to a score without one, or took one away")
        return found

    def advance(self, scores: Sequence[Score]) -> dict[str, float]:
        if self._state is None:
            return {}
        with naming(self._reward):
            return dict(self._state.advance(scores))

    def state_dict(self) -> dict[str, Any]:
        """Raises: RewardError also if JSON cannot hold it."""
        if self._state is None:
            return {}
        with naming(self._reward):
            state: dict[str, Any] = json.loads(json.dumps(dict(self._state.state_dict()), allow_nan=False))
            return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Raises: CheckpointError if there is a state for a reward that has none."""
        if self._state is not None:
            with naming(self._reward):
                self._state.load_state_dict(state)
        elif state:
            raise CheckpointError(
                f"the checkpoint holds {', '.join(state)} of a reward, but this reward keeps no state"
            )
