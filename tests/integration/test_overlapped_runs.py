"""The overlapped run: killed anywhere and resumed it is the run that was not; whatever fails in it ends all of it."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dying_parts import PLACES

from elocution.config.load import load_config
from elocution.errors import CodecError, NonFiniteError, RewardError
from elocution.testing.run_directory import read_rows
from elocution.train.loop import train

SMALL = [
    *("train.prompts_per_step=2", "rollout.group_size=3", "train.steps=4", "train.save_every=2"),
    *("eval.sentences=1", "eval.probe_sentences=0", "eval.judge='dying_parts:Mute'", "reward.workers=1"),
    *("model.family='dying_parts:DyingPolicy'", "codec.type='dying_parts:DyingCodec'"),
    *("reward.type='dying_parts:DyingReward'", "algorithm.correction='token_truncate'"),
]
LAGS = {
    "synchronous": ["train.max_lag=0"],
    "one batch of overlap": ["train.max_lag=1"],
    "synced every two steps, one batch of overlap": ["train.max_lag=2", "train.sync_every=2"],
}


def untimed(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if not key.startswith(("time/", "idle/", "memory/"))}


def consumed(run: Path) -> list[tuple[int, str]]:
    return [(row["step"], prompt) for row in read_rows(run / "metrics.jsonl") for prompt in row["prompts"]]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run of each kind without interruption."""
    runs = {name: tmp_path_factory.mktemp("runs") / str(number) for number, name in enumerate(LAGS)}
    for name, path in runs.items():
        train(load_config(None, SMALL + LAGS[name]), path)
    return runs


def test_prompts_are_consumed_once_whatever_the_lag(whole: dict[str, Path]) -> None:
    by_lag = [consumed(path) for path in whole.values()]
    assert by_lag[0] == by_lag[1] == by_lag[2]
    assert len({prompt for _, prompt in by_lag[0]}) == len(by_lag[0]) == 8


def test_the_weights_that_draw_a_step_are_as_old_as_they_should_be(whole: dict[str, Path]) -> None:
    lags = [[row["lag/max_versions"] for row in read_rows(path / "metrics.jsonl")] for path in whole.values()]
    assert lags == [[0, 0, 0, 0], [0, 1, 1, 1], [0, 1, 2, 1]]


def test_a_lag_changes_the_run_and_each_stage_has_its_idle_share(whole: dict[str, Path]) -> None:
    runs = [read_rows(path / "metrics.jsonl") for path in whole.values()]
    assert len({rows[-1]["reward/mean"] for rows in runs}) > 1
    for rows in runs:
        for row in rows:
            assert all(0 <= row[f"idle/{stage}"] <= 1 for stage in ("rollout", "decode", "score", "learn"))


def _kills() -> Iterator[Any]:
    """Every kind of run killed at every place; one of them without being asked for."""
    quick = (list(LAGS)[1], PLACES[2])
    for lag in LAGS:
        for place in PLACES:
            marks = () if (lag, place) == quick else pytest.mark.slow
            yield pytest.param(lag, place, marks=marks, id=f"{lag}-{place}")


@pytest.mark.parametrize(("lag", "place"), list(_kills()))
def test_s76_a_run_killed_between_any_two_stages_consumes_every_prompt_once_and_ends_with_the_same_weights(
    lag: str, place: str, whole: dict[str, Path], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    settings = SMALL + LAGS[lag]
    script = Path(__file__).with_name("dying_parts.py")
    killed = subprocess.run([sys.executable, script, run, place, *settings], capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    assert len(read_rows(run / "metrics.jsonl")) in {1, 2, 3}
    train(load_config(None, settings), run, resume=True)
    assert consumed(run) == consumed(whole[lag])
    rows, expected = (list(map(untimed, read_rows(path / "metrics.jsonl"))) for path in (run, whole[lag]))
    assert rows == expected
    name = Path("checkpoints", "step_4", "model", "model.safetensors")
    assert (run / name).read_bytes() == (whole[lag] / name).read_bytes()


FAILING = """
import time
from dying_parts import DyingCodec, DyingPolicy, DyingReward
from elocution.errors import CodecError

class FailingCodec(DyingCodec):
    calls = 0
    def decode(self, codes):
        FailingCodec.calls += 1
        if FailingCodec.calls > 3:
            raise CodecError("the codec is broken")
        return super().decode(codes)

class FailingReward(DyingReward):
    calls = 0
    def start(self, rollout):
        FailingReward.calls += 1
        if FailingReward.calls > 8:
            raise ValueError("cannot judge")
        return super().start(rollout)

class FailingPolicy(DyingPolicy):
    calls = 0
    def incremental(self, **settings):
        FailingPolicy.calls += 1
        if FailingPolicy.calls > 2:
            raise RuntimeError("the sampler is broken")
        return super().incremental(**settings)

class HangingReward(DyingReward):
    def start(self, rollout):
        return Never()

class Never:
    def wait(self, wait_s):
        time.sleep(min(wait_s, 0.05))
        return False
"""


@pytest.fixture
def failing_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "failing_parts.py").write_text(FAILING)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    before = set(threading.enumerate())
    yield
    sys.modules.pop("failing_parts", None)
    assert set(threading.enumerate()) <= before
    assert multiprocessing.active_children() == []


@pytest.mark.usefixtures("failing_parts")
@pytest.mark.parametrize("lag", ["synchronous", pytest.param("one batch of overlap", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("setting", "error", "message"),
    [
        ("codec.type='failing_parts:FailingCodec'", CodecError, "the codec is broken"),
        ("reward.type='failing_parts:FailingReward'", RewardError, "FailingReward failed: ValueError: cannot judge"),
        pytest.param(
            "model.family='failing_parts:FailingPolicy'", RuntimeError, "the sampler is broken", marks=pytest.mark.slow
        ),
        ("model.family='dying_parts:NanPolicy'", NonFiniteError, "max_skipped_updates = 0"),
    ],
    ids=["decode", "score", "rollout", "learn"],
)
def test_a_failure_in_any_stage_ends_the_run_with_its_error_and_leaves_nothing_behind(
    lag: str, setting: str, error: type[Exception], message: str, tmp_path: Path
) -> None:
    settings = [*SMALL, *LAGS[lag], setting, "train.max_skipped_updates=0"]
    with pytest.raises(error, match=message):
        train(load_config(None, settings), tmp_path / "run")


@pytest.mark.usefixtures("failing_parts")
def test_a_signal_ends_a_run_whose_scorer_hangs_and_a_checkpoint_is_kept(tmp_path: Path) -> None:
    run = tmp_path / "run"
    settings = [*SMALL, *LAGS["one batch of overlap"], "reward.type='failing_parts:HangingReward'"]

    def interrupt() -> None:
        while not (run / "checkpoints" / "step_0").is_dir():
            time.sleep(0.02)
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=interrupt)
    thread.start()
    summary = train(load_config(None, settings), run)
    thread.join()
    assert summary.stopped_by == "SIGTERM"
    assert summary.step == 0
    assert [path.name for path in (run / "checkpoints").iterdir()] == ["step_0"]
