"""Runs whose completions come from a server with a copy of the weights: proven at each step, or ended before the first.

The server is a process of its own that answers as vLLM does, with a model (`vllm_double.py`).
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from click.testing import Result
from served_parts import (
    FAULTS,
    LORA,
    MODEL,
    PATH,
    SMALL,
    Double,
    arguments,
    killed_at_exit,
    running_double,
    train,
    wait_for,
)
from typer.testing import CliRunner

from elocution.assets import resolve_path
from elocution.cli.main import app
from elocution.errors import SyncError
from elocution.rollout.sync.store import VersionStore
from elocution.testing.run_directory import read_rows

SETTINGS = (*SMALL, "rollout.engine='vllm'")
DOUBLE = Path(__file__).with_name("vllm_double.py")


@pytest.fixture(scope="module")
def launched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Double]:
    with running_double(DOUBLE, str(resolve_path("builtin:tiny-llasa")), tmp_path_factory.mktemp("double")) as double:
        yield double


@pytest.fixture
def server(launched: Double) -> Double:
    launched.reset()
    return launched


def train_with(server: Double, run: Path, *settings: str) -> Result:
    return train(run, [*SETTINGS, f"rollout.server.urls=['{server.url}']", *settings])


@pytest.mark.parametrize(
    ("strategy", "settings"),
    [
        pytest.param("full", (), id="full"),
        pytest.param("delta", LORA, id="delta", marks=pytest.mark.slow),
        pytest.param("adapter", LORA, id="adapter", marks=pytest.mark.slow),
    ],
)
def test_s62_s66_a_run_is_proven_at_each_step_and_records_it(
    server: Double, tmp_path: Path, strategy: str, settings: tuple[str, ...]
) -> None:
    run = tmp_path / "run"
    done = train_with(server, run, f"rollout.sync.strategy='{strategy}'", "eval.every=1", *settings)
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
    server: Double, tmp_path: Path, fault: str
) -> None:
    run = tmp_path / "run"
    server.reset(fault=fault, since=0)
    done = train_with(server, run)
    assert isinstance(done.exception, SyncError)
    assert "not proven to have the rehearsal" in str(done.exception)
    assert "differ from the trainer's" in str(done.exception)
    assert server.loads == 1
    assert not (run / "evaluations.jsonl").exists()
    assert (run / "sync").is_dir()  # for whoever looks for the cause


@pytest.mark.slow
def test_a_server_that_begins_to_load_wrongly_ends_the_run_which_says_what_was_proven_last(
    server: Double, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    server.reset(fault="no op", since=2)
    done = train_with(server, run, "rollout.sync.max_retries=1")
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


def test_a_version_that_is_not_proven_is_loaded_again(server: Double, tmp_path: Path) -> None:
    run = tmp_path / "run"
    server.reset(fault="old weights", since=2, times=1)
    done = train_with(server, run, "rollout.sync.max_retries=2")
    assert done.exit_code == 0, done.exception
    assert [row["sync/retries"] for row in read_rows(run / "metrics.jsonl")] == [0, 1]
    assert server.loads == 5


@pytest.mark.slow
def test_s64_s76_a_run_killed_within_a_sync_leaves_nothing_half_announced_and_goes_on_with_proven_weights(
    server: Double, tmp_path: Path
) -> None:
    run, whole = tmp_path / "run", tmp_path / "whole"
    shared = tmp_path / "shared"
    settings = (f"rollout.server.weights_dir='{shared}'", "rollout.server.request_timeout_s=60")
    assert train_with(server, whole, *settings).exit_code == 0
    server.reset(fault="hangs", since=2)
    place = f"rollout.server.urls=['{server.url}']"
    command = [sys.executable, "-m", "elocution", *arguments(run, [*SETTINGS, place, *settings])]
    with killed_at_exit(command):
        wait_for(lambda: server.loads >= 3)
    (root,) = shared.iterdir()
    assert sorted(path.name for path in root.glob("v*")) == ["v000000", "v000001"]
    last = VersionStore(root).last_proven()
    assert last is not None
    assert last.manifest.version == 0
    server.reset()
    httpx2.post(f"{server.url}/pause")  # as the run had left it
    resumed = CliRunner().invoke(app, ["train", "--resume", "--output-dir", str(run)])
    assert resumed.exit_code == 0, resumed.exception
    assert list(shared.iterdir()) == []
    assert [row["sync/policy_version"] for row in read_rows(run / "metrics.jsonl")] == [0, 1]
    assert (run / MODEL).read_bytes() == (whole / MODEL).read_bytes()


@pytest.mark.slow
def test_a_server_of_the_run_that_dies_within_a_load_comes_back_and_is_proven(tmp_path: Path) -> None:
    python = tmp_path / "python"
    # Asked whether it has vLLM, it says so; told to start it, it starts the double.
    python.write_text(
        f'#!/bin/sh\n[ "$1" = -c ] && exec echo vllm 0\nshift 2\nPYTHONPATH="{PATH}" exec {sys.executable} {DOUBLE} "$@"\n'
    )
    python.chmod(0o755)
    fault = json.dumps({"fault": "dies", "since": 2}).replace('"', '\\"')
    run = tmp_path / "run"
    launch = (f"rollout.server.python='{python}'", f'rollout.server.env={{VLLM_DOUBLE_FAULT="{fault}"}}')
    done = train(run, [*SETTINGS, *launch])
    assert done.exit_code == 0, done.exception
    rows = read_rows(run / "metrics.jsonl")
    assert [row["sync/policy_version"] for row in rows] == [0, 1]
    assert all(row["sync/probe_difference_max_nats"] < 1e-4 for row in rows)
    assert (run / "servers" / "0.log").is_file()
