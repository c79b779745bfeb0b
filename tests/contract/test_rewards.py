"""What every reward of the table must do, whichever recognisers it listens with, and wherever they run."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from elocution.config.tree import ComponentConfig, RewardConfig, RunConfig
from elocution.errors import ConfigError
from elocution.rewards import REWARDS, Reward, load_reward
from elocution.rewards.base import FLOOR, StreamingReward
from elocution.testing.reward_server import running_reward_server
from elocution.types import Audio, Completion, FinishReason, Outcome, Rollout, Utterance

RATE = 16_000
NO_SPEECH = [Outcome.EMPTY, Outcome.SILENT, Outcome.RUNAWAY]


def _config(kind: str, **settings: Any) -> RewardConfig:
    """The composite reward is put together as `wer_nll` is."""
    words = ComponentConfig(fact="wer", weight=0.6, utility="tanh", scale=3.0)
    sound = ComponentConfig(fact="nll", weight=0.4, utility="exp", scale=3.0)
    components = {"words": words, "sound": sound} if kind == "composite" else {}
    return RewardConfig(type=kind, components=components, **settings)


@pytest.fixture(scope="module", params=sorted(REWARDS))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def reward(kind: str) -> Iterator[Reward]:
    with _entered(kind, workers=2) as reward:
        yield reward


@contextmanager
def _entered(kind: str, **settings: Any) -> Iterator[Reward]:
    """The reward `kind`; a remote one asks a server that runs `wer_nll` with these settings."""
    if kind != "remote":
        with load_reward(_config(kind, **settings)) as reward:
            yield reward
        return
    # Recognisers that fail on purpose would not pass the test that a server and its client make first.
    untested = {"self_test": {"audio": ""}}
    served = RunConfig.model_validate({"reward": {"type": "wer_nll", **untested, **settings}})
    with running_reward_server(served) as url:
        remote = {"urls": [url], "retries": 0}
        with load_reward(RewardConfig.model_validate({"type": kind, "remote": remote, **untested})) as reward:
            yield reward


def _rollout(text: str, audio: Audio | None, outcome: Outcome = Outcome.SPEECH) -> Rollout:
    completion = Completion(np.zeros((1, 1), np.int64), np.zeros((1, 1), np.float32), FinishReason.STOP, 0)
    return Rollout(Utterance("u", text), completion, np.zeros((3, 1), np.int64), audio, outcome)


def _noise(num_samples: int) -> Audio:
    return Audio((0.03 * np.random.default_rng(0).standard_normal(num_samples)).astype(np.float32), RATE)


def test_each_rollout_has_a_score_and_each_score_its_place(reward: Reward, spoken: dict[str, Audio]) -> None:
    right = [_rollout(text, clip) for text, clip in spoken.items()]
    texts = list(spoken)
    wrong = [_rollout(texts[index - 1], clip) for index, clip in enumerate(spoken.values())]
    mixed = [rollout for pair in zip(right, wrong, strict=True) for rollout in pair]
    values = [score.value for score in reward(mixed)]
    assert len(values) == len(mixed)
    assert all(value is not None for value in values)
    assert all(good > 0.7 and bad < 0.2 for good, bad in zip(values[::2], values[1::2], strict=True))  # type: ignore[operator]


def test_s10_a_clip_scores_the_same_in_any_company(reward: Reward, spoken: dict[str, Audio]) -> None:
    # With noise the recognisers are in doubt, where a trace of another clip would show.
    noisy = {text: Audio(clip.samples + _noise(len(clip.samples)).samples, RATE) for text, clip in spoken.items()}
    rollouts = [_rollout(text, clip) for text, clip in noisy.items()]
    together = reward(rollouts)
    assert reward(rollouts[::-1])[::-1] == together
    assert reward(rollouts[2:3]) == together[2:3]


def test_one_by_one_gives_what_together_gives(reward: Reward, spoken: dict[str, Audio]) -> None:
    assert isinstance(reward, StreamingReward)
    rollouts = [_rollout(text, clip) for text, clip in spoken.items()] + [_rollout("nine", None, Outcome.EMPTY)]
    pending = [reward.start(rollout) for rollout in rollouts]
    assert all(one.wait(60) for one in pending)
    assert [one.result() for one in pending] == reward(rollouts)


def test_no_rollouts_have_no_scores(reward: Reward) -> None:
    assert reward([]) == []


@pytest.mark.parametrize("outcome", NO_SPEECH)
def test_s01_s07_no_speech_takes_the_floor(reward: Reward, spoken: dict[str, Audio], outcome: Outcome) -> None:
    text, clip = next(iter(spoken.items()))
    no_speech, speech = reward(
        [_rollout(text, None if outcome is Outcome.EMPTY else clip, outcome), _rollout(text, clip)]
    )
    assert no_speech.value == FLOOR
    assert speech.value is not None
    assert speech.value > FLOOR


@pytest.mark.parametrize("outcome", NO_SPEECH)
def test_no_speech_is_not_listened_to(kind: str, spoken: dict[str, Audio], outcome: Outcome) -> None:
    with _entered(kind, workers=1, nll="failing_recognisers:RaisesWhenScoring") as reward:
        (score,) = reward([_rollout("nine", next(iter(spoken.values())), outcome)])
    assert score.error is None


def test_s06_noise_is_heard_as_nothing(reward: Reward) -> None:
    (score,) = reward([_rollout("the green house", _noise(RATE))])
    assert score.value == FLOOR
    assert score.transcript == ""


def test_s02_s09_a_recogniser_that_fails_gives_a_reason_and_no_number(kind: str, spoken: dict[str, Audio]) -> None:
    text = "nine nine seven one"
    loud = Audio(np.sign(spoken[text].samples) * np.float32(0.95), RATE)
    with _entered(kind, workers=1, asr="failing_recognisers:RaisesOnLoudClips") as reward:
        scores = reward([_rollout(text, clip) for clip in (spoken[text], loud, spoken[text])])
    assert [score.value is None for score in scores] == [False, True, False]
    assert "the recogniser is down" in str(scores[1].error)


def test_a_reward_of_ones_own_is_named_by_its_import_path() -> None:
    config = RewardConfig(type="failing_recognisers:LongestWins")
    with load_reward(config) as reward:
        assert [score.value for score in reward([_rollout("nine", None)])] == [3.0]


@pytest.mark.parametrize(
    ("name", "message"), [("wer_nl", "did you mean 'wer_nll'"), ("no_such_module:Reward", "cannot import the reward")]
)
def test_an_unknown_reward_is_a_config_error(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_reward(RewardConfig(type=name))
