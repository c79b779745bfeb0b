"""The known clip, noise and silence: which scores pass, and what is said of those that do not."""

import math

import pytest

from elocution.config.tree import SelfTestConfig
from elocution.errors import ConfigError, DataError, RewardError
from elocution.rewards.self_test import check_scores, load_self_test
from elocution.types import Score

TEST = load_self_test(SelfTestConfig())
SILENCE, KNOWN, NOISE = (
    Score(0.0, transcript=""),
    Score(0.9, transcript=TEST.text.upper()),
    Score(0.1, transcript="the"),
)


def test_the_shipped_clip_is_speech_beside_noise_and_silence() -> None:
    silence, known, noise = TEST.clips
    assert not silence.samples.any()
    assert 1.0 < known.duration_s < 5.0
    assert math.sqrt((noise.samples**2).mean()) == pytest.approx(0.1, rel=0.05)


def test_scores_that_are_right_pass_and_silence_gives_the_floor() -> None:
    assert check_scores(TEST, [SILENCE, KNOWN, NOISE], subject="it") is SILENCE


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        ([Score(0.2), KNOWN, NOISE], "it gives silence the reward 0.2, expected 0.0"),
        ([Score(None, error="down"), KNOWN, NOISE], "it cannot score silence: down"),
        ([SILENCE, Score(None, error="down"), NOISE], "it cannot score the known clip: down"),
        ([SILENCE, KNOWN, Score(None, error="down")], "it cannot score noise: down"),
        ([SILENCE, Score(0.9, transcript="the brother"), NOISE], "it hears 'the brother' in the known clip, expected"),
        ([SILENCE, Score(0.9), NOISE], "it hears '' in the known clip"),
        ([SILENCE, Score(0.4, transcript=TEST.text), NOISE], "the known clip the reward 0.4, expected at least"),
        ([SILENCE, KNOWN, Score(0.6)], "it gives noise the reward 0.6 and hears None, expected less than"),
    ],
)
def test_scores_that_are_wrong_are_named(scores: list[Score], message: str) -> None:
    with pytest.raises(RewardError, match=message):
        check_scores(TEST, scores, subject="it")


def test_without_a_clip_only_silence_is_scored() -> None:
    test = load_self_test(SelfTestConfig(audio=""))
    assert len(test.clips) == 1
    assert check_scores(test, [SILENCE], subject="it") is SILENCE


def test_a_clip_that_cannot_be_read_is_named() -> None:
    with pytest.raises(DataError, match=r"cannot read absent\.wav as audio"):
        load_self_test(SelfTestConfig(audio="absent.wav"))
    with pytest.raises(ConfigError, match="nothing ships under the name 'builtin:x'"):
        load_self_test(SelfTestConfig(audio="builtin:x"))
