"""A reward of a user's own may fail in any way; each has one message that names the reward."""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import pytest

from elocution.config.tree import RewardConfig
from elocution.errors import ConfigError, RewardError, RewardUnavailable
from elocution.rewards import load_reward, score_all
from elocution.types import Completion, FinishReason, Outcome, Rollout, Score, Utterance

COMPLETION = Completion(np.zeros((1, 1), np.int64), np.zeros((1, 1), np.float32), FinishReason.STOP, 0)
ROLLOUTS = [Rollout(Utterance("u", "one"), COMPLETION, np.zeros((0, 1), np.int64), None, Outcome.EMPTY)] * 2


class Answers:
    """Gives what it was built with; an error is raised."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None: ...

    def __call__(self, rollouts: Sequence[Rollout]) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return [Score(value=float("nan"))] if self.answer == "nan" else self.answer


class CannotBeBuilt(Answers):
    def __init__(self, config: RewardConfig) -> None:
        raise OSError("no such model")


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (ZeroDivisionError("by zero"), r"Answers failed: ZeroDivisionError: by zero \(.*test_base\.py:\d+\)"),
        ("nan", "a score must be finite, got nan"),
        (None, "NoneType"),
        ([], "gave 0 scores for 2 completions"),
        ([Score(1.0)] * 3, "gave 3 scores for 2 completions"),
        ([0.5, 0.5], r"gave 0\.5, expected elocution\.types\.Score"),
    ],
)
def test_a_reward_that_breaks_its_word_is_named(answer: Any, message: str) -> None:
    with pytest.raises(RewardError, match=message):
        score_all(Answers(answer), ROLLOUTS)


def test_an_error_that_says_what_it_is_passes_as_it_is() -> None:
    with pytest.raises(RewardUnavailable, match="down"):
        score_all(Answers(RewardUnavailable("down")), ROLLOUTS)


def test_good_scores_pass_in_order() -> None:
    assert [score.value for score in score_all(Answers([Score(1.0), Score(0.5)]), ROLLOUTS)] == [1.0, 0.5]


def test_a_reward_that_cannot_be_built_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match=r"cannot build the reward '.*CannotBeBuilt': OSError: no such model"):
        load_reward(RewardConfig(type=f"{__name__}:CannotBeBuilt"))


@pytest.mark.parametrize("key", ["asr", "nll"])
def test_a_recogniser_that_is_not_there_is_found_before_any_clip(key: str) -> None:
    with pytest.raises(ConfigError, match=r"there is no .* 'absent'"):
        load_reward(RewardConfig.model_validate({key: "absent"}))
