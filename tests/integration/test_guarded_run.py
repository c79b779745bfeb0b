"""A run that destroys its policy is stopped by its guards, with a checkpoint and something to listen to."""

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from elocution.cli.main import app
from elocution.testing.run_directory import read_rows

SETTINGS = (
    *("train.prompts_per_step=2", "rollout.group_size=2", "train.steps=6", "train.device=cpu", "train.rules=[]"),
    *(
        "eval.sentences=2",
        "eval.probe_sentences=0",
        "eval.every=1",
        "reward.workers=1",
        "rollout.max_codes_per_char=2.5",
    ),
    "train.learning_rate=0.02",  # two hundred times the recipe's
)


def train(run: Path, *settings: str) -> Result:
    sets = [word for setting in (*SETTINGS, *settings) for word in ("--set", setting)]
    return CliRunner().invoke(app, ["train", "--output-dir", str(run), *sets])


def test_s13_a_run_with_a_ruinous_learning_rate_stops_with_alarms_and_a_checkpoint(tmp_path: Path) -> None:
    run = tmp_path / "run"
    done = train(run)
    assert done.exit_code == 0, done.output
    assert "stopped by its guards (" in done.output
    alarms = read_rows(run / "alarms.jsonl")
    stopped = [alarm for alarm in alarms if alarm["level"] == "stop"]
    assert stopped
    step = stopped[0]["step"]
    assert step < 6
    assert [row["step"] for row in read_rows(run / "metrics.jsonl")][-1] == step
    assert (run / "checkpoints" / f"step_{step}" / "state.json").is_file()
    assert any(alarm["audio"] for alarm in stopped)
    assert all((run / name).is_file() for alarm in stopped for name in alarm["audio"])
    assert all("the base's" in alarm["text"] for alarm in alarms)


@pytest.mark.slow
def test_s13_a_run_goes_back_to_its_best_weights_once_and_learns_more_slowly(tmp_path: Path) -> None:
    run = tmp_path / "run"
    done = train(run, "eval.on_collapse=roll_back", "eval.rollback_lr_factor=0.25", 'log.to=["tensorboard"]')
    assert done.exit_code == 0, done.output
    [back] = read_rows(run / "rollbacks.jsonl")
    assert back["to_step"] < back["step"]
    assert back["monitors"]
    rates = {row["step"]: row["learning_rate"] for row in read_rows(run / "metrics.jsonl")}
    assert {rate for step, rate in rates.items() if step <= back["step"]} == {0.02}
    assert {rate for step, rate in rates.items() if step > back["step"]} == {0.25 * 0.02}
    # A quarter of a ruinous rate is ruinous too: the second time, the run stops.
    assert "stopped by its guards (" in done.output
    best = (run / "best").resolve()
    assert int(best.name.removeprefix("step_")) == back["to_step"]
    # Nothing good had been evaluated before: the next step begins from the base, from which it has no distance.
    assert back["to_step"] == 0
    distances = {row["step"]: row["kl/k3"] for row in read_rows(run / "metrics.jsonl")}
    assert distances[back["step"] + 1] == 0
    assert list((run / "tensorboard").glob("events.*"))
