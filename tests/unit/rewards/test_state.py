"""What a reward carries from step to step, through the wrapper that does not trust it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import pytest

from elocution.config.tree import RewardConfig
from elocution.errors import CheckpointError, RewardError
from elocution.rewards import load_reward
from elocution.types import Rollout, Score

SCORES = [Score(1.0), Score(None, error="down"), Score(3.0)]


class Counting:
    """Worth more with every step; `spoil` is what it makes of its word."""

    spoil = ""

    def __init__(self, config: RewardConfig) -> None:
        self.steps = 0

    @property
    def state(self) -> Self:
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None: ...

    def __call__(self, rollouts: Sequence[Rollout]) -> list[Score]:
        return [Score(1.0) for _ in rollouts]

    def revalue(self, scores: Sequence[Score]) -> list[Score]:
        if self.spoil == "raises":
            raise KeyError("wer")
        if self.spoil == "short":
            return list(scores[1:])
        if self.spoil == "invents":
            return [Score(0.0) for _ in scores]
        return [score if score.value is None else replace(score, value=score.value + self.steps) for score in scores]

    def advance(self, scores: Sequence[Score]) -> Mapping[str, float]:
        self.steps += 1
        return {"counting/steps": self.steps}

    def state_dict(self) -> Mapping[str, Any]:
        return {"steps": {1} if self.spoil == "set" else self.steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.steps = state["steps"]


def test_a_reward_of_ones_own_carries_its_state() -> None:
    with load_reward(RewardConfig(type=f"{__name__}:Counting")) as reward:
        assert reward.state.revalue(SCORES) == SCORES
        assert reward.state.advance(SCORES) == {"counting/steps": 1}
        assert [score.value for score in reward.state.revalue(SCORES)] == [2.0, None, 4.0]
        assert reward.state.state_dict() == {"steps": 1}
        reward.state.load_state_dict({"steps": 5})
        assert [score.value for score in reward.state.revalue(SCORES)] == [6.0, None, 8.0]


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        ("raises", "Counting failed: KeyError: 'wer'"),
        ("short", "gave 2 scores for 3 completions"),
        ("invents", "gave a value to a score without one"),
        ("set", "Counting failed: TypeError: Object of type set is not JSON serializable"),
    ],
)
def test_a_state_that_breaks_its_word_is_one_error(spoil: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Counting, "spoil", spoil)
    with load_reward(RewardConfig(type=f"{__name__}:Counting")) as reward:
        use = reward.state.state_dict if spoil == "set" else lambda: reward.state.revalue(SCORES)
        with pytest.raises(RewardError, match=message):
            use()


def test_a_reward_without_state_carries_nothing_and_takes_nothing() -> None:
    with load_reward(RewardConfig()) as reward:
        assert reward.state.revalue(SCORES) == SCORES
        assert reward.state.advance(SCORES) == reward.state.state_dict() == {}
        reward.state.load_state_dict({})
        with pytest.raises(CheckpointError, match="holds steps of a reward, but this reward keeps no state"):
            reward.state.load_state_dict({"steps": 1})
