"""All checkpoints of a run, by one process and by two: every clip once, the best by what was held out."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner, Result

from elocution.assets import resolve_path
from elocution.cli.main import app
from elocution.config.load import dump_config
from elocution.config.tree import RunConfig
from elocution.errors import RunDirectoryError
from elocution.policies import load_policy
from elocution.testing.run_directory import read_rows
from elocution.train.checkpoint import point_best_at, save_checkpoint
from elocution.train.run_directory import RunDirectory

SETTINGS = ("reward.asr=pocketsphinx-open", "eval.judge=pocketsphinx-bigram", "reward.workers=1", "train.device=cpu")
SMALL = ("eval.sentences=3", "eval.probe_sentences=0", "eval.seeds=2", "rollout.batch_size=2")


SETS = [word for setting in (*SETTINGS, *SMALL) for word in ("--set", setting)]


def by_two_processes(*arguments: str) -> subprocess.CompletedProcess[str]:
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [sys.executable, *launcher, "-m", "elocution", "eval", *arguments, *SETS]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=600, env=dict(os.environ))


def here(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["eval", *arguments, *SETS])


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two checkpoints: one speaks as the base does, the later one is broken, and `best` points at it."""
    path = tmp_path_factory.mktemp("runs") / "run"
    path.mkdir()
    (path / "config.toml").write_text(dump_config(RunConfig()))
    policy = load_policy("llasa", resolve_path("builtin:tiny-llasa"))
    for step in (1, 2):
        if step == 2:
            with torch.no_grad():
                for parameter in policy.model.parameters():
                    parameter += 0.05 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0))
        state = {"state": {}, "param_groups": []}
        saved = save_checkpoint(
            path / "checkpoints", policy.save_pretrained, state, step=step, policy_version=step, keep=5
        )
    point_best_at(path, saved)
    return path


@pytest.mark.slow
def test_two_processes_share_every_clip_once_and_best_is_the_best(run: Path) -> None:
    done = by_two_processes(str(run), "--sweep")
    assert done.returncode == 0, done.stderr
    assert "best: step 1" in done.stdout
    assert (run / "best").resolve() == (run / "checkpoints" / "step_1").resolve()
    folder = run / "evaluations" / "held_out"
    for name in ("base", "step_1", "step_2"):
        rows = read_rows(folder / name / "clips.jsonl")
        assert len(rows) == len({(row["id"], row["seed"]) for row in rows}) == 6
        assert not list((folder / name).glob("clips-*"))
        result = json.loads((folder / name / "result.json").read_text())
        assert (result["scored"], result["of"], result["speed"]["processes"]) == (6, 6, 2)
    # The same weights and seeds: the same speech.
    base, same = (read_rows(folder / name / "clips.jsonl") for name in ("base", "step_1"))
    assert base == same
    swept = json.loads((folder / "sweep.json").read_text())
    assert swept["best"] == 1
    good, broken = swept["checkpoints"]
    assert good["composite"] > broken["composite"]

    # A later call goes on, split in another way, and makes nothing again; one process alone finds the same.
    (folder / "step_2" / "result.json").unlink()
    kept = read_rows(folder / "step_2" / "clips.jsonl")
    (folder / "step_2" / "clips-1.jsonl").write_text("".join(json.dumps(row) + "\n" for row in kept[:4]))
    (folder / "step_2" / "clips.jsonl").unlink()
    again = here(str(run), "--sweep")
    assert again.exit_code == 0, again.output
    assert read_rows(folder / "step_2" / "clips.jsonl") == kept

    compared = here("--compare", str(folder / "base"), str(folder / "step_1"))
    assert compared.exit_code == 0, compared.output
    assert "B against A: no difference shown" in compared.stdout
    assert json.loads((folder / "step_1" / "against-base.json").read_text())["fell"] == []

    # The best alone, which the sweep has measured already.
    one = here(str(run))
    assert one.exit_code == 0, one.output
    assert "the evaluation: " + str(folder / "step_1") in one.stdout


def test_a_run_that_is_being_trained_is_left_alone(run: Path) -> None:
    with RunDirectory(run, resume=True):
        refused = here(str(run), "--sweep")
    assert isinstance(refused.exception, RunDirectoryError)
    assert f"another process is writing the run {run}" in str(refused.exception)
