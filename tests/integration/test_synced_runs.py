"""Runs whose completions come from a server with a copy of the weights: proven at each step, or ended before the first.

The server is a process of its own that answers as vLLM does, with a model (`vllm_double.py`).
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from click.testing import Result
from typer.testing import CliRunner

from elocution.assets import resolve_path
from elocution.cli.main import app
from elocution.errors import SyncError
from elocution.rollout.launch import LaunchedServer, ServerLaunch
from elocution.rollout.sync.store import VersionStore
from elocution.testing.run_directory import read_rows

SMALL = (
    *("rollout.engine='vllm'", "rollout.sync.probes=2", "rollout.sync.probe_codes=16", "rollout.sync.max_retries=0"),
    *("train.prompts_per_step=2", "rollout.group_size=2", "train.steps=2", "train.save_every=1", "reward.workers=1"),
    *("rollout.max_codes_per_char=1", "eval.sentences=1", "eval.probe_sentences=0", "eval.judge='dying_parts:Mute'"),
    "reward.type='dying_parts:DyingReward'",
)
LORA = ("model.lora.rank=4", "train.rules=[]")
FAULTS = ("no op", "old weights", "half the shards", "misnamed keys", "wrong scale")
DOUBLE = Path(__file__).with_name("vllm_double.py")


class Server:
    """The server, and how to make it go wrong."""

    def __init__(self, url: str) -> None:
        self.url = url

    def reset(self, **fault: Any) -> None:
        httpx2.post(f"{self.url}/fault", json=fault, timeout=60).raise_for_status()

    @property
    def loads(self) -> int:
        return int(httpx2.get(f"{self.url}/loads").json()["loads"])


@pytest.fixture(scope="module")
def launched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    base = str(resolve_path("builtin:tiny-llasa"))
    launch = ServerLaunch(
        command=lambda port: [sys.executable, str(DOUBLE), "--port", str(port), "--model", base],
        environment={"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    with LaunchedServer(launch, tmp_path_factory.mktemp("double") / "server.log") as process:
        yield Server(process.url)


@pytest.fixture
def server(launched: Server) -> Server:
    launched.reset()
    return launched


def arguments(run: Path, *settings: str) -> list[str]:
    pairs = [part for setting in (*SMALL, *settings) for part in ("--set", setting)]
    return ["train", "--output-dir", str(run), *pairs]


def train(run: Path, server: Server, *settings: str) -> Result:
    return CliRunner().invoke(app, arguments(run, f"rollout.server.urls=['{server.url}']", *settings))


@pytest.mark.parametrize(
    ("strategy", "settings"),
    [
        pytest.param("full", (), id="full"),
        pytest.param("delta", LORA, id="delta", marks=pytest.mark.slow),
        pytest.param("adapter", LORA, id="adapter", marks=pytest.mark.slow),
    ],
)
def test_s62_s66_a_run_is_proven_at_each_step_and_records_it(
    server: Server, tmp_path: Path, strategy: str, settings: tuple[str, ...]
) -> None:
    run = tmp_path / "run"
    done = train(run, server, f"rollout.sync.strategy='{strategy}'", "eval.every=1", *settings)
    assert done.exit_code == 0, done.exception
    rows = read_rows(run / "metrics.jsonl")
    assert [row["sync/policy_version"] for row in rows] == [0, 1]
    for row in rows:
        assert row["ratio/max_deviation"] is None or row["ratio/max_deviation"] < 1e-3
        assert row["lag/max_versions"] == 0
        assert row["sync/probe_difference_max_nats"] < 1e-4
        assert row["sync/bytes"] > 0
        assert all(row[f"sync/{part}_s"] > 0 for part in ("write", "verify", "load", "prove"))
        assert row["sync/retries"] == row["engine/reloads"] == 0
    assert [row["policy_version"] for row in read_rows(run / "evaluations.jsonl")] == [0, 1, 2]
    assert server.loads == 4  # the rehearsal, and each version once, though two users draw with it
    assert not (run / "sync").exists()


@pytest.mark.parametrize("fault", FAULTS)
def test_s62_s64_a_server_that_loads_wrongly_ends_the_run_before_anything_is_drawn(
    server: Server, tmp_path: Path, fault: str
) -> None:
    run = tmp_path / "run"
    server.reset(fault=fault, since=0)
    done = train(run, server)
    assert isinstance(done.exception, SyncError)
    assert "not proven to have the rehearsal" in str(done.exception)
    assert "differ from the trainer's" in str(done.exception)
    assert server.loads == 1
    assert not (run / "evaluations.jsonl").exists()
    assert (run / "sync").is_dir()  # for whoever looks for the cause


@pytest.mark.slow
def test_a_server_that_begins_to_load_wrongly_ends_the_run_which_says_what_was_proven_last(
    server: Server, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    server.reset(fault="no op", since=2)
    done = train(run, server, "rollout.sync.max_retries=1")
    assert isinstance(done.exception, SyncError)
    assert "after 2 attempts the engine is not proven to have version 1" in str(done.exception)
    assert "the last proven is version 0 of 20" in str(done.exception)
    assert server.loads == 4
    last = VersionStore(run / "sync").last_proven()
    assert last is not None
    assert last.manifest.version == 0
    server.reset()
    resumed = CliRunner().invoke(app, ["train", "--resume", "--output-dir", str(run)])
    assert resumed.exit_code == 0, resumed.exception
    assert [row["sync/policy_version"] for row in read_rows(run / "metrics.jsonl")] == [0, 1]
    assert not (run / "sync").exists()


def test_a_version_that_is_not_proven_is_loaded_again(server: Server, tmp_path: Path) -> None:
    run = tmp_path / "run"
    server.reset(fault="old weights", since=2, times=1)
    done = train(run, server, "rollout.sync.max_retries=2")
    assert done.exit_code == 0, done.exception
    assert [row["sync/retries"] for row in read_rows(run / "metrics.jsonl")] == [0, 1]
    assert server.loads == 5


@pytest.mark.slow
def test_s64_s76_a_run_killed_within_a_sync_leaves_nothing_half_announced_and_goes_on_with_proven_weights(
    server: Server, tmp_path: Path
) -> None:
    run, whole = tmp_path / "run", tmp_path / "whole"
    shared = tmp_path / "shared"
    settings = (f"rollout.server.weights_dir='{shared}'", "rollout.server.request_timeout_s=60")
    assert train(whole, server, *settings).exit_code == 0
    server.reset(fault="hangs", since=2)
    command = [sys.executable, "-m", "elocution"]
    url = f"rollout.server.urls=['{server.url}']"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen([*command, *arguments(run, url, *settings)], env=environment) as process:
        while server.loads < 3:
            assert process.poll() is None
            time.sleep(0.05)
        process.kill()
    (root,) = shared.iterdir()
    assert sorted(path.name for path in root.glob("v*")) == ["v000000", "v000001"]
    last = VersionStore(root).last_proven()
    assert last is not None
    assert last.manifest.version == 0
    server.reset()
    httpx2.post(f"{server.url}/pause")  # as the run had left it
    resumed = subprocess.run(
        [*command, "train", "--resume", "--output-dir", str(run)], env=environment, capture_output=True, check=False
    )
    assert resumed.returncode == 0, resumed.stderr.decode()
    assert list(shared.iterdir()) == []
    assert [row["sync/policy_version"] for row in read_rows(run / "metrics.jsonl")] == [0, 1]
    model = Path("checkpoints", "step_2", "model", "model.safetensors")
    assert (run / model).read_bytes() == (whole / model).read_bytes()


@pytest.mark.slow
def test_a_server_of_the_run_that_dies_within_a_load_comes_back_and_is_proven(tmp_path: Path) -> None:
    python = tmp_path / "python"
    path = os.pathsep.join(filter(None, sys.path))
    # Asked whether it has vLLM, it says so; told to start it, it starts the double.
    python.write_text(
        f'#!/bin/sh\n[ "$1" = -c ] && exec echo vllm 0\nshift 2\nPYTHONPATH="{path}" exec {sys.executable} {DOUBLE} "$@"\n'
    )
    python.chmod(0o755)
    fault = json.dumps({"fault": "dies", "since": 2}).replace('"', '\\"')
    run = tmp_path / "run"
    done = CliRunner().invoke(
        app,
        arguments(run, f"rollout.server.python='{python}'", f'rollout.server.env={{VLLM_DOUBLE_FAULT="{fault}"}}'),
    )
    assert done.exit_code == 0, done.exception
    rows = read_rows(run / "metrics.jsonl")
    assert [row["sync/policy_version"] for row in rows] == [0, 1]
    assert all(row["sync/probe_difference_max_nats"] < 1e-4 for row in rows)
    assert (run / "servers" / "0.log").is_file()
