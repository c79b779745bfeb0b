"""A run that destroys its policy is stopped by its guards, with a checkpoint and something to listen to."""

from pathlib import Path

from typer.testing import CliRunner

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


def test_s13_a_run_with_a_ruinous_learning_rate_stops_with_alarms_and_a_checkpoint(tmp_path: Path) -> None:
    run = tmp_path / "run"
    sets = [word for setting in SETTINGS for word in ("--set", setting)]
    done = CliRunner().invoke(app, ["train", "--output-dir", str(run), *sets])
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
