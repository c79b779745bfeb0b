"""What the steps before do to a reward: the published z-scores by hand, prices of constraints, and a state that comes back."""

import json
import logging
import math
from collections.abc import Sequence
from typing import Any

import pytest

from elocution.config.tree import RewardConfig
from elocution.errors import CheckpointError, ConfigError, RewardError
from elocution.rewards.base import FLOOR
from elocution.rewards.running import RunningValues
from elocution.types import Score

VOICE = {"fact": "f0_hz", "weight": 0.6, "utility": "linear", "low": -1.0, "high": 1.0}
MOOD = VOICE | {"fact": "rate", "weight": 0.4}
SILENCE = Score(FLOOR, {"wer": 1.0, "empty_transcript": 1.0}, "", parts={"voice": FLOOR, "mood": FLOOR})
FAILED = Score(None, error="down")


def running(**settings: object) -> RunningValues:
    base = {"type": "composite", "components": {"voice": VOICE, "mood": MOOD}, "combine": "sum"}
    return RunningValues(RewardConfig.model_validate(base | settings))


def z_gate(**settings: object) -> RunningValues:
    return running(combine="z_score", gate_beta=10.0, baseline_momentum=0.5, **settings)


def constrained(**settings: object) -> RunningValues:
    """The voice may lose 0.5 points of similarity, the spread of the pitch a tenth."""
    constraints = {
        "voice": {"fact": "similarity", "slack": 0.005, "scale": 0.01},
        "pitch": {"fact": "f0_spread", "share": 0.9},
    }
    return running(constraints=constraints, price_rate=0.5, max_price=4.0, **settings)


def spoken(voice: float, mood: float, wer: float = 0.0) -> Score:
    return Score(0.5, {"wer": wer}, "a", parts={"voice": voice, "mood": mood})


def measured(similarity: float, spread: float, value: float = 0.5) -> Score:
    return Score(value, {"similarity": similarity, "f0_spread": spread}, "a", parts={"voice": 0.5, "mood": 0.5})


def values(state: RunningValues, scores: Sequence[Score]) -> list[float | None]:
    return [score.value for score in state.revalue(scores)]


def test_the_published_z_scores_by_hand() -> None:
    state = z_gate()
    # Means 0.4 and 0.6, deviations 0.1 and 0.2: z is -1 and +1. Nothing was seen before, so the step is its own baseline.
    first = [spoken(0.3, 0.4), spoken(0.5, 0.8, wer=0.1)]
    assert values(state, first) == pytest.approx([-1.0, math.exp(-1)], rel=1e-5)
    state.advance(first)
    # 0.6 (0.6 - 0.4) / 0.1 + 0.4 (0.5 - 0.6) / 0.2 = 1.2 - 0.2
    assert values(state, [spoken(0.6, 0.5)]) == pytest.approx([1.0], rel=1e-5)
    # Half of the old mean and half of the new one: 0.4 -> 0.5, and the variance 0.01 -> 0.005.
    metrics = state.advance([spoken(0.6, 0.6)])
    assert metrics["baseline/voice_mean"] == pytest.approx(0.5)
    assert metrics["baseline/voice_std"] == pytest.approx(math.sqrt(0.005))


def test_the_flip_of_the_published_gate_is_there_and_said(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        state = z_gate()
    assert "its sign flips below the mean" in caplog.text
    state.advance([spoken(0.3, 0.4), spoken(0.5, 0.8)])
    clear, garbled = values(state, [spoken(0.3, 0.4), spoken(0.3, 0.4, wer=0.3)])
    assert clear is not None
    assert garbled is not None
    assert garbled > clear
    caplog.clear()
    running(gate_beta=10.0)
    assert not caplog.text


@pytest.mark.parametrize("make", [z_gate, constrained])
def test_s01_s02_silence_is_lowest_and_a_failure_no_number_whatever_is_taken_from_the_others(make: Any) -> None:
    state = make()
    good = Score(0.5, {"wer": 0, "similarity": 0.8, "f0_spread": 3.0}, "a", parts={"voice": 0.9, "mood": 0.9})
    bad = Score(0.1, {"wer": 0, "similarity": 0.0, "f0_spread": 1.0}, "a", parts={"voice": 0.1, "mood": 0.1})
    state.advance([good])
    for _ in range(3):
        state.advance([bad])
    best, worst, silent, failed = values(state, [good, bad, SILENCE, FAILED])
    assert failed is None
    assert silent == worst
    assert worst is not None
    assert best is not None
    assert worst < FLOOR < best


def test_silence_teaches_the_baselines_nothing() -> None:
    one, other = z_gate(), z_gate()
    one.advance([spoken(0.3, 0.4), SILENCE, FAILED])
    other.advance([spoken(0.3, 0.4)])
    assert one.state_dict() == other.state_dict()
    assert values(z_gate(), [SILENCE]) == [FLOOR]


def test_s16_a_missing_part_gives_its_weight_to_the_others() -> None:
    state = z_gate()
    state.advance([spoken(0.3, 0.4), spoken(0.5, 0.8)])
    assert values(state, [Score(0.5, {"wer": 0.0}, parts={"voice": 0.6})]) == pytest.approx([2.0], rel=1e-5)


def test_weights_that_do_not_match_the_parts_are_config_errors() -> None:
    with pytest.raises(ConfigError, match=r"parts are voices, but \[reward\.components\] has weights for mood, voice"):
        z_gate().revalue([Score(0.5, {"wer": 0.0}, parts={"voices": 0.5})])
    with pytest.raises(ConfigError, match="needs the measure wer"):
        z_gate().revalue([Score(0.5, {"cer": 0.0}, parts={"voice": 0.5})])
    with pytest.raises(ConfigError, match="these have none"):
        z_gate().revalue([Score(0.5, {"wer": 0.0})])


def test_a_price_rises_while_a_scripted_reward_breaks_its_constraint_and_falls_once_it_holds() -> None:
    """The base has similarity 0.6 and spread 3, so the limits are 0.595 and 2.7."""
    state = constrained()
    first = state.advance([measured(0.5, 2.0), measured(0.7, 4.0)])
    assert first["constraint/voice_price"] == first["constraint/pitch_price"] == 0
    assert first["constraint/voice_mean"] == pytest.approx(0.6)
    prices = []
    for similarity in (0.59, 0.585, 0.58, 0.595, 0.6, 0.605, 0.62, 0.65):
        metrics = state.advance([measured(similarity, 2.8)])
        prices.append(metrics["constraint/voice_price"])
        assert metrics["constraint/voice_violation"] == pytest.approx((0.595 - similarity) / 0.01)
        assert metrics["constraint/pitch_price"] == 0
    # Half of 0.5, 1 and 1.5 scales; unchanged at the limit; then down, never below 0.
    assert prices == pytest.approx([0.25, 0.75, 1.5, 1.5, 1.25, 0.75, 0, 0])
    for _ in range(20):
        metrics = state.advance([measured(0.5, 2.8)])
    assert metrics["constraint/voice_price"] == 4.0


def test_a_price_makes_the_voice_worth_more_than_the_words_that_cost_it() -> None:
    state = constrained()
    state.advance([measured(0.6, 3.0)])
    wordy, faithful = measured(0.58, 3.0, value=0.9), measured(0.6, 3.0, value=0.5)
    assert values(state, [wordy, faithful]) == [0.9, 0.5]
    margins = []
    for _ in range(6):
        state.advance([wordy])
        one, other = values(state, [wordy, faithful])
        assert one is not None
        assert other is not None
        margins.append(other - one)
    assert margins == sorted(margins)
    assert margins[0] > 0


def test_a_limit_from_above_holds_to_the_base_too() -> None:
    state = running(constraints={"pace": {"fact": "rate", "keep": "at_most", "share": 1.1}}, price_rate=1.0)
    state.advance([Score(0.5, {"rate": 10.0})])
    assert state.advance([Score(0.5, {"rate": 10.9})])["constraint/pace_price"] == 0
    assert state.advance([Score(0.5, {"rate": 12.0})])["constraint/pace_price"] == pytest.approx(1.0)


def test_lacking_a_constrained_measure_is_of_no_use() -> None:
    state = constrained()
    state.advance([measured(0.6, 3.0)])
    state.advance([measured(0.5, 3.0)])
    without = Score(0.5, {"f0_spread": 3.0}, "a")
    one, mean, other = values(state, [measured(0.5, 3.0), without, measured(0.6, 3.0)])
    assert one is not None
    assert other is not None
    assert mean == pytest.approx((one + other) / 2)


def test_a_constraint_without_a_base_stops_the_run() -> None:
    with pytest.raises(RewardError, match=r"first step has the measure f0_spread, .*constraints \(pitch\)"):
        constrained().advance([Score(0.5, {"similarity": 0.5})])


@pytest.mark.parametrize("make", [z_gate, constrained])
def test_s77_the_state_comes_back_to_the_bit_through_json(make: Any) -> None:
    state, again = make(), make()
    batches = [[Score(0.1 * n, {"wer": 0.1 / n, "similarity": 0.7 / n, "f0_spread": 3 / n}, parts={"voice": 0.3 / n})]
               for n in range(1, 7)]  # fmt: skip
    for batch in batches[:3]:
        state.advance(batch)
    again.load_state_dict(json.loads(json.dumps(state.state_dict())))
    for batch in batches[3:]:
        assert state.revalue(batch) == again.revalue(batch)
        assert state.advance(batch) == again.advance(batch)
    assert state.state_dict() == again.state_dict()


def test_a_state_of_another_reward_is_refused() -> None:
    with pytest.raises(CheckpointError, match="holds nothing of the reward, expected baselines"):
        z_gate().load_state_dict({})
    with pytest.raises(CheckpointError, match="expected nothing"):
        running().load_state_dict(z_gate().state_dict())
    with pytest.raises(CheckpointError, match="has bases of pace"):
        constrained().load_state_dict({"baselines": {}, "bases": {"pace": 1.0}, "prices": {}})


def test_a_combination_that_depends_on_nothing_changes_nothing() -> None:
    state, scores = running(gate_beta=10.0), [spoken(0.1, 0.2), SILENCE, FAILED]
    assert state.revalue(scores) == scores
    assert state.advance(scores) == {}
    assert state.state_dict() == {}
