"""Runs against a server in a process of its own that goes wrong when it is told to."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import torch
from click.testing import Result
from safetensors.torch import load_file
from typer.testing import CliRunner

from elocution.cli.main import app
from elocution.rollout.launch import LaunchedServer, ServerLaunch

__all__ = [
    "ALONE",
    "FAULTS",
    "LORA",
    "MODEL",
    "PATH",
    "SMALL",
    "Double",
    "arguments",
    "check_same_training",
    "double_launch",
    "killed_at_exit",
    "running_double",
    "train",
    "wait_for",
]

SMALL = (
    *("rollout.sync.probes=2", "rollout.sync.probe_codes=16", "rollout.sync.max_retries=0", "rollout.group_size=2"),
    *("train.prompts_per_step=2", "train.steps=2", "train.save_every=1", "reward.workers=1"),
    *("rollout.max_codes_per_char=1", "eval.sentences=1", "eval.probe_sentences=0", "eval.judge='dying_parts:Mute'"),
    "reward.type='dying_parts:DyingReward'",
)
FAULTS = ("no op", "old weights", "half the shards", "misnamed keys", "wrong scale")
ALONE = "rollout.server.max_in_flight=1"
LORA = ("model.lora.rank=4", "train.rules=[]")
MODEL = Path("checkpoints", "step_2", "model", "model.safetensors")
PATH = os.pathsep.join(filter(None, sys.path))


class Double:
    """A double that runs, and how to make it go wrong."""

    def __init__(self, url: str) -> None:
        self.url = url

    def reset(self, **fault: Any) -> None:
        httpx2.post(f"{self.url}/fault", json=fault, timeout=60).raise_for_status()

    @property
    def loads(self) -> int:
        return int(httpx2.get(f"{self.url}/loads").json()["loads"])


def double_launch(script: Path, model: str) -> ServerLaunch:
    """How the double in `script` is started with the checkpoint `model`."""
    return ServerLaunch(
        command=lambda port: [sys.executable, str(script), "--port", str(port), "--model", model],
        environment={"PYTHONPATH": PATH},
    )


@contextmanager
def running_double(script: Path, model: str, folder: Path) -> Iterator[Double]:
    """The double in `script` with the checkpoint `model`, with its log in `folder`; it ends with the context."""
    with LaunchedServer(double_launch(script, model), folder / "server.log") as process:
        yield Double(process.url)


def arguments(run: Path, settings: Sequence[str]) -> list[str]:
    """The command line of a run."""
    return ["train", "--output-dir", str(run), *(part for setting in settings for part in ("--set", setting))]


def train(run: Path, settings: Sequence[str]) -> Result:
    """A run in this process."""
    return CliRunner().invoke(app, arguments(run, settings))


def check_same_training(run: Path, other: Path) -> None:
    """Two runs have trained the same weights, to the bit.

    Their servers draw one completion at a time (`ALONE`): log-probs round otherwise in another batch, and requests that come
    late make other batches.
    """
    ours, theirs = load_file(run / MODEL), load_file(other / MODEL)
    assert ours.keys() == theirs.keys()
    assert [name for name in ours if not torch.equal(ours[name], theirs[name])] == []


@contextmanager
def killed_at_exit(command: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is killed where the context ends, if it has not ended by itself."""
    environment = os.environ | {"PYTHONPATH": PATH}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_for(condition: Callable[[], bool], limit_s: float = 300.0) -> None:
    """Returns once `condition` holds."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
