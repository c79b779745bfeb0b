import pytest

from elocution.train.idle import StageTimes, advice


def row(seconds: float, **idle: float) -> dict[str, float]:
    return {"time/step_s": seconds} | {f"idle/{stage}": share for stage, share in idle.items()}


def test_the_time_of_a_step_is_split_into_work_and_waiting() -> None:
    readings = iter([{"score": 1.0, "learn": 5.0}, {"score": 1.0, "learn": 5.0 + 1e9}])
    metrics = StageTimes(lambda: next(readings)).metrics()
    assert metrics["idle/score"] == 1.0  # it did nothing
    assert metrics["idle/learn"] == 0.0  # no clock can make it negative
    assert metrics["time/score_s"] == 0.0
    assert metrics["time/step_s"] > 0


def test_the_advice_names_the_stage_that_waits_least_weighing_steps_by_their_time() -> None:
    rows = [
        row(1.0, rollout=0.0, decode=0.9, score=0.9, learn=0.5),
        row(9.0, rollout=0.8, decode=0.9, score=0.1, learn=0.5),
    ]
    line = advice(rows, max_lag=1)
    assert line is not None
    # rollout (1 x 1 + 9 x 0.2) / 10 = 28 %, score (1 x 0.1 + 9 x 0.9) / 10 = 82 %
    assert "rollout 28 %, decode 10 %, score 82 %, learn 50 %" in line
    assert "wait for score" in line
    assert "reward.workers" in line
    assert "max_lag" not in line
    assert "\n" not in line


@pytest.mark.parametrize(("busy", "is_said"), [(0.7, True), (0.95, False)])
def test_overlap_is_advised_only_where_it_can_gain(busy: float, is_said: bool) -> None:
    line = advice([row(1.0, rollout=1.0, decode=1.0, score=1 - busy, learn=0.8)], max_lag=0)
    assert line is not None
    assert ("train.max_lag = 1" in line) is is_said


def test_nothing_measured_gives_no_advice() -> None:
    assert advice([], max_lag=0) is None
    assert advice([{"step": 1, "time/step_s": 3.0}], max_lag=0) is None  # recorded without idle shares
