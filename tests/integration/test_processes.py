"""Runs of two processes on a CPU, with whole weights and in shards, against runs of one."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import httpx2
import pytest
import torch
from safetensors.torch import load_file

from elocution.testing.run_directory import read_rows as rows

# Three prompts for two processes; some steps leave a process without a group.
SETTINGS = [
    *("train.steps=4", "train.prompts_per_step=3", "rollout.group_size=3", "train.minibatches=2", "train.save_every=2"),
    *(
        "eval.sentences=2",
        "eval.probe_sentences=1",
        "eval.judge=process_parts:Mute",
        "model.family=process_parts:DoublePolicy",
    ),
    *("reward.type=process_parts:SignallingReward", "reward.workers=1", "algorithm.advantage=reinforce_pp"),
    *("algorithm.kl_coef=0.01", "algorithm.correction=token_truncate", "algorithm.max_resamples=1"),
    *("train.warmup_steps=1", "train.lr_schedule=cosine", "train.lr_min=1e-5"),
]
SERVED = (
    *("rollout.engine=sglang", "rollout.sglang.launch=elocution", "rollout.sync.max_retries=0"),
    *("rollout.sync.probes=2", "rollout.sync.probe_codes=16"),
)
CURVE = (
    "learning_rate",
    "loss/policy",
    "kl/k3",
    "entropy/nats",
    "grad/norm",
    "reward/mean",
    "ratio/clipped_share",
    "length/mean_codes",
)


def train(run: Path, processes: int, *more: str, signalled: str = "") -> subprocess.CompletedProcess[str]:
    """`signalled` is "RANK NAME AFTER": which process gets which signal, and after how many steps."""
    rank, name, after = signalled.split() if signalled else ("", "", "")
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]),
        "SIGNAL_RUN": str(run),
        "SIGNAL_RANK": rank or "nobody",
        "SIGNAL_NAME": name,
        "SIGNAL_AFTER": after,
    }
    launcher = (
        ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)] if processes > 1 else []
    )
    settings = [word for setting in (*SETTINGS, *more) for word in ("--set", setting)]
    command = [sys.executable, *launcher, "-m", "elocution", "train", *settings, "--output-dir", str(run)]
    if (run / "config.toml").is_file():
        command.append("--resume")
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=600)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "alone"
    done = train(run, 1)
    assert done.returncode == 0, done.stderr
    return run


def assert_same_curve(run: Path, other: Path) -> None:
    assert len(rows(run / "metrics.jsonl")) == 4
    for mine, theirs in zip(rows(run / "metrics.jsonl"), rows(other / "metrics.jsonl"), strict=True):
        assert mine["prompts"] == theirs["prompts"]
        assert mine["policy_version"] == theirs["policy_version"]
        for key in CURVE:
            assert mine[key] == pytest.approx(theirs[key], abs=1e-5), (mine["step"], key)
    weights = load_file(run / "checkpoints" / "step_4" / "model" / "model.safetensors")
    for name, tensor in load_file(other / "checkpoints" / "step_4" / "model" / "model.safetensors").items():
        assert (weights[name] - tensor).abs().max() < 1e-5, name


def extremes_of(run: Path) -> list[tuple[int, str, str, float, bool]]:
    return [
        (row["step"], row["utterance_id"], row["kind"], row["reward"], bool(row["audio"]))
        for row in rows(run / "rollouts.jsonl")
    ]


@pytest.mark.slow
def test_s77_two_processes_then_shards_then_one_process_repeat_a_run_of_one(alone: Path, tmp_path: Path) -> None:
    """A signal to either process stops both at the same step; what resumes may be split in another way."""
    run = tmp_path / "shared"
    stopped = train(run, 2, signalled="1 SIGTERM 1")
    assert stopped.returncode == 0, stopped.stderr
    assert re.search("stopped by SIGTERM after step [12]", stopped.stdout)
    stopped = train(run, 2, "train.parallel=fsdp", signalled="0 SIGTERM 2")
    assert stopped.returncode == 0, stopped.stderr
    assert re.search("stopped by SIGTERM after step [23]", stopped.stdout)
    done = train(run, 1)
    assert done.returncode == 0, done.stderr
    assert_same_curve(run, alone)
    assert extremes_of(run) == extremes_of(alone)
    ours, one = (torch.load(each / "checkpoints/step_4/optimizer.pt") for each in (run, alone))
    assert ours["param_groups"] == one["param_groups"]
    assert ours["state"].keys() == one["state"].keys()


@pytest.fixture(scope="module")
def served_alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "served"
    done = train(run, 1, *SERVED)
    assert done.returncode == 0, done.stderr
    return run


@pytest.mark.slow
@pytest.mark.parametrize("more", [pytest.param((), id="ddp"), pytest.param(("train.parallel=fsdp",), id="fsdp")])
def test_s77_two_processes_that_share_a_server_repeat_a_run_of_one(
    served_alone: Path, tmp_path: Path, more: tuple[str, ...]
) -> None:
    run = tmp_path / "shared"
    done = train(run, 2, *SERVED, *more)
    assert done.returncode == 0, done.stderr
    assert_same_curve(run, served_alone)
    assert extremes_of(run) == extremes_of(served_alone)
    for row in rows(run / "metrics.jsonl"):
        assert row["lag/max_versions"] == 0  # every completion bears the version that was just proven
        assert row["sync/probe_difference_max_nats"] < 1e-3
    assert [log.name for log in (run / "servers").iterdir()] == ["0.log"]
    assert not (run / "sync").exists()


def test_accelerate_that_starts_one_process_of_two_is_an_error() -> None:
    launch = [str(Path(sys.executable).with_name("accelerate")), "launch", "--cpu", "--num_processes", "2"]
    command = [*launch, "-m", "elocution", "train", "--dry-run"]
    started = subprocess.run(command, capture_output=True, text=True, check=False)
    assert started.returncode != 0
    assert "error: accelerate launch was asked for 2 processes and started one" in started.stderr


@pytest.mark.slow
def test_s85_a_process_that_fails_ends_the_others_with_its_reason(tmp_path: Path) -> None:
    failed = train(tmp_path / "failed", 2, signalled="1 ERROR 1")
    assert failed.returncode != 0
    assert "the scorer of this process is broken" in failed.stderr
    assert "error: in process 1 of 2: " in failed.stderr
    assert len(rows(tmp_path / "failed" / "metrics.jsonl")) == 1


@pytest.mark.slow
def test_s85_a_process_that_is_killed_ends_the_others(tmp_path: Path) -> None:
    killed = train(tmp_path / "killed", 2, signalled="1 SIGKILL 1")
    assert killed.returncode != 0
    assert "error: process 0 of 2 goes no further, for another one ended" in killed.stderr
    assert len(rows(tmp_path / "killed" / "metrics.jsonl")) == 1


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_s85_a_process_that_is_killed_ends_the_others_and_the_server_that_they_share(tmp_path: Path, rank: int) -> None:
    run = tmp_path / "killed"
    killed = train(run, 2, *SERVED, signalled=f"{rank} SIGKILL 1")
    assert killed.returncode != 0
    assert f"process {1 - rank} of 2 has lost another one, and ends" in killed.stderr
    assert len(rows(run / "metrics.jsonl")) == 1
    log = (run / "servers" / "0.log").read_text()
    (url,) = {word for word in log.split() if word.startswith("http://") and word.count("/") == 2}
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            httpx2.get(f"{url}/health")
        except httpx2.TransportError:
            return
        time.sleep(0.2)
    raise AssertionError(f"the server at {url} outlived the run")
