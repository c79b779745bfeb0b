"""A reward of a user's own that fails or hangs at any point of its life ends in one error that names it."""

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from elocution.config.tree import RewardConfig
from elocution.errors import ConfigError, RewardError, RewardUnavailable
from elocution.rewards import load_reward
from elocution.rewards.base import StreamingReward
from elocution.rewards.watched import WatchedReward, WatchedStreamingReward
from elocution.types import Completion, FinishReason, Outcome, Rollout, Score, Utterance

COMPLETION = Completion(np.zeros((1, 1), np.int64), np.zeros((1, 1), np.float32), FinishReason.STOP, 0)
ROLLOUTS = [Rollout(Utterance("u", "one"), COMPLETION, np.zeros((0, 1), np.int64), None, Outcome.EMPTY)] * 2

Stage = dict[str, Callable[[], Any]]


class Staged:
    """Does at each point of its life what it was given for it."""

    def __init__(self, stages: Stage) -> None:
        self.stages = stages
        self._do("build")

    def __enter__(self) -> Any:
        return self._do("enter", self)

    def __exit__(self, *details: object) -> Any:
        return self._do("exit")

    def __call__(self, rollouts: Sequence[Rollout]) -> list[Score]:
        return self._do("call", [Score(1.0) for _ in rollouts])  # type: ignore[no-any-return]

    def _do(self, stage: str, otherwise: Any = None) -> Any:
        return self.stages[stage]() if stage in self.stages else otherwise


def watched(stages: Stage, limit_s: float = 20.0) -> WatchedReward:
    return WatchedReward("mine:Reward", lambda: Staged(stages), limit_s=limit_s)


def live(stages: Stage, limit_s: float = 20.0) -> None:
    """A whole life: built, started, asked, ended."""
    with watched(stages, limit_s) as reward:
        assert reward(ROLLOUTS) == [Score(1.0), Score(1.0)]


@pytest.fixture
def hang() -> Iterator[Callable[[], None]]:
    """Hangs until the test is over."""
    over = threading.Event()
    yield lambda: over.wait() and None
    over.set()


def fail() -> None:
    raise OSError("no such model")


def leave() -> None:
    raise SystemExit(3)


def test_a_reward_that_keeps_its_word_passes() -> None:
    live({})


@pytest.mark.parametrize(
    ("stage", "kind", "message"),
    [
        ("build", ConfigError, "cannot build the reward 'mine:Reward': "),
        ("enter", RewardUnavailable, "cannot start the reward 'mine:Reward': "),
        ("call", RewardError, "the reward .*Staged failed: "),
        ("exit", RewardError, "the reward 'mine:Reward' failed to end: "),
    ],
)
@pytest.mark.parametrize(
    ("action", "cause"),
    [
        (fail, r"OSError: no such model \(.*test_watched\.py:\d+\)"),
        (leave, r"SystemExit: 3 \(.*test_watched\.py:\d+\)"),
    ],
)
def test_a_failure_names_the_reward_and_the_cause(
    stage: str, kind: type[Exception], message: str, action: Callable[[], None], cause: str
) -> None:
    with pytest.raises(kind, match=message + cause):
        live({stage: action})


@pytest.mark.parametrize(
    ("stage", "activity"), [("build", "being built"), ("enter", "starting"), ("call", "scoring 2 completions")]
)
def test_s05_a_reward_that_hangs_is_an_error_after_its_limit(
    stage: str, activity: str, hang: Callable[[], None]
) -> None:
    started = time.monotonic()
    with pytest.raises(RewardUnavailable, match=rf"'mine:Reward' is still {activity} after 0\.2 s; .*call_timeout_s"):
        live({stage: hang}, limit_s=0.2)
    assert time.monotonic() - started < 10


def test_a_hung_reward_is_ended_from_outside(hang: Callable[[], None]) -> None:
    ended = threading.Event()
    with pytest.raises(RewardUnavailable):
        live({"call": hang, "exit": ended.set}, limit_s=0.2)
    assert ended.is_set()


def test_a_reward_that_fails_to_end_does_not_hide_the_error_before(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(KeyError), watched({"exit": fail}):
        raise KeyError
    assert "the reward 'mine:Reward' failed to end: OSError: no such model" in caplog.text


def test_a_reward_cannot_swallow_the_error_of_a_run() -> None:
    with pytest.raises(KeyError), watched({"exit": lambda: True}):
        raise KeyError


def test_a_time_limit_of_the_reward_itself_is_its_own_failure() -> None:
    def give_up() -> None:
        raise TimeoutError("server")

    with pytest.raises(RewardError, match="TimeoutError: server"):
        live({"call": give_up})


def test_an_enter_that_gives_nothing_is_named() -> None:
    with pytest.raises(ConfigError, match="'mine:Reward' cannot be a reward: its __enter__ gives None"):
        live({"enter": lambda: None})


def test_what_a_reward_opens_is_used_and_closed_by_the_same_thread() -> None:
    opened: list[sqlite3.Connection] = []

    def count() -> list[Score]:
        (value,) = opened[0].execute("select 1.0").fetchone()
        return [Score(value)] * 2

    live(
        {
            "build": lambda: opened.append(sqlite3.connect(":memory:")),
            "call": count,
            "exit": lambda: opened[0].close(),
        }
    )


class Sleeps(Staged):
    def __init__(self, config: RewardConfig) -> None:
        super().__init__({"call": lambda: time.sleep(1)})


def test_the_limit_is_the_configs() -> None:
    config = RewardConfig(type=f"{__name__}:Sleeps", call_timeout_s=0.1)
    with (
        pytest.raises(RewardUnavailable, match=r"Sleeps' is still scoring 2 completions after 0\.1 s"),
        load_reward(config) as reward,
    ):
        reward(ROLLOUTS)


class OneByOne(Staged):
    """Begins with a completion of its own accord; what it gives for one is what its stage `score` says."""

    def start(self, rollout: Rollout) -> Any:
        self._do("start")
        return Slow(self.stages.get("wait", lambda: True), self.stages.get("score", lambda: Score(0.5)))


class Slow:
    def __init__(self, ready: Callable[[], bool], score: Callable[[], Any]) -> None:
        self.ready, self.score = ready, score

    def wait(self, wait_s: float | None) -> bool:
        return self.ready()

    def result(self) -> Any:
        return self.score()


def pending(stages: Stage, limit_s: float = 20.0) -> Any:
    return WatchedStreamingReward("mine:OneByOne", lambda: OneByOne(stages), limit_s=limit_s).start(ROLLOUTS[0])


def test_a_reward_that_begins_with_one_completion_keeps_that_when_it_is_watched() -> None:
    assert isinstance(load_reward(RewardConfig()), StreamingReward)
    assert not isinstance(watched({}), StreamingReward)
    score = pending({})
    assert score.wait(1.0)
    assert score.result() == Score(0.5)


def test_s05_a_completion_that_is_scored_for_ever_ends_in_an_error_that_names_the_limit() -> None:
    score = pending({"wait": lambda: False}, limit_s=0.05)
    assert not score.wait(0.0)
    time.sleep(0.06)
    with pytest.raises(RewardUnavailable, match=r"'mine:OneByOne' is still scoring a completion after 0\.05 s"):
        score.wait(0.1)


def test_s05_a_reward_that_hangs_when_it_begins_with_a_completion_ends(hang: Callable[[], None]) -> None:
    with pytest.raises(RewardUnavailable, match="is still starting to score a completion"):
        pending({"start": hang}, limit_s=0.1)


def test_a_reward_that_gives_no_score_for_one_completion_is_named() -> None:
    with pytest.raises(RewardError, match=r"OneByOne gave 0\.5, expected"):
        pending({"score": lambda: 0.5}).result()


def test_the_limit_of_a_call_begins_with_its_turn() -> None:
    """Callers of one reward that cannot work for both at once wait for each other, which is not the reward's slowness."""

    def listen() -> list[Score]:
        time.sleep(0.6)
        return [Score(1.0)] * len(ROLLOUTS)

    slow = WatchedReward("mine:Staged", lambda: Staged({"call": listen}), limit_s=1.0)
    with slow as reward, ThreadPoolExecutor(3) as callers:
        answers = [caller.result() for caller in [callers.submit(reward, ROLLOUTS) for _ in range(3)]]
    assert [len(scores) for scores in answers] == [len(ROLLOUTS)] * 3
