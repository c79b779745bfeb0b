"""Runs whose completions come from TTS servers in processes of their own: proven, spoilt, killed and started again."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from click.testing import Result
from served_parts import (
    ALONE,
    LORA,
    PATH,
    SMALL,
    Double,
    arguments,
    check_same_training,
    killed_at_exit,
    running_double,
    train,
    wait_for,
)
from typer.testing import CliRunner

from elocution.assets import resolve_path
from elocution.cli.main import app
from elocution.errors import EngineError, SyncError
from elocution.policies import load_policy
from elocution.rollout.launch import find_free_port
from elocution.rollout.sync.store import VersionStore
from elocution.testing.policies import small_llasa
from elocution.testing.run_directory import read_rows

SETTINGS = (*SMALL, "rollout.engine='sglang'", "rollout.group_size=4")
DOUBLE = Path(__file__).with_name("tts_double.py")


@pytest.fixture(scope="module")
def launched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Double]:
    with running_double(DOUBLE, "builtin:tiny-llasa", tmp_path_factory.mktemp("double")) as double:
        yield double


@pytest.fixture
def server(launched: Double) -> Double:
    launched.reset()
    return launched


def train_with(server: Double | None, run: Path, *settings: str) -> Result:
    """A run with `server`, or with one that it starts."""
    place = f"rollout.server.urls=['{server.url}']" if server else "rollout.sglang.launch='elocution'"
    return train(run, [*SETTINGS, place, *settings])


def check_proven(run: Path) -> list[dict[str, Any]]:
    rows = read_rows(run / "metrics.jsonl")
    assert [row["sync/policy_version"] for row in rows] == [0, 1]
    for row in rows:
        assert row["sync/probe_difference_max_nats"] < 1e-4
        assert row["lag/max_versions"] == 0
        assert row["engine/illegal_ids"] == 0
    assert not (run / "sync").exists()
    return rows


@pytest.mark.parametrize(
    ("strategy", "settings"),
    [
        pytest.param("full", (), id="full"),
        pytest.param("delta", LORA, id="delta", marks=pytest.mark.slow),
        pytest.param("adapter", LORA, id="adapter", marks=pytest.mark.slow),
    ],
)
def test_s62_s66_a_run_is_proven_at_each_step(
    server: Double, tmp_path: Path, strategy: str, settings: tuple[str, ...]
) -> None:
    done = train_with(server, tmp_path / "run", f"rollout.sync.strategy='{strategy}'", *settings)
    assert done.exit_code == 0, done.exception
    assert all(row["engine/reloads"] == row["engine/retries"] == 0 for row in check_proven(tmp_path / "run"))
    assert server.loads >= 4  # the rehearsal and each version


@pytest.mark.slow
def test_rollouts_of_the_next_steps_are_drawn_while_the_learner_works(server: Double, tmp_path: Path) -> None:
    lag = ("train.max_lag=2", "train.sync_every=2", "algorithm.correction='token_truncate'", "train.steps=4")
    done = train_with(server, tmp_path / "run", *lag)
    assert done.exit_code == 0, done.exception
    rows = read_rows(tmp_path / "run" / "metrics.jsonl")
    # Weights are synced after steps 2, 4, …, and a step's completions are begun one step before its turn.
    assert [row["sync/policy_version"] for row in rows] == [0, 0, 0, 2]
    assert [row["lag/max_versions"] for row in rows[:3]] == [0, 1, 2]
    assert all(row["sync/probe_difference_max_nats"] < 1e-4 for row in rows)


@pytest.mark.parametrize("fault", ["no op", "old weights", "half the shards", "misnamed keys", "wrong scale"])
def test_s62_s64_a_server_that_loads_wrongly_ends_the_run_before_anything_is_drawn(
    server: Double, tmp_path: Path, fault: str
) -> None:
    server.reset(fault=fault, since=0)
    done = train_with(server, tmp_path / "run")
    assert isinstance(done.exception, SyncError)
    assert "not proven to have the rehearsal" in str(done.exception)
    assert "differ from the trainer's" in str(done.exception)
    assert server.loads == 1
    assert not (tmp_path / "run" / "evaluations.jsonl").exists()


@pytest.mark.slow
def test_s64_a_server_that_begins_to_load_wrongly_later_is_found_at_that_sync(server: Double, tmp_path: Path) -> None:
    server.reset(fault="no op", since=2)
    done = train_with(server, tmp_path / "run")
    assert isinstance(done.exception, SyncError)
    assert "not proven to have version 1" in str(done.exception)
    assert "the last proven is version 0" in str(done.exception)


def test_a_server_that_answers_with_another_requests_speech_is_found_before_training(
    server: Double, tmp_path: Path
) -> None:
    server.reset(fault="crosses")
    done = train_with(server, tmp_path / "run", "rollout.sync.probes=4", "rollout.sync.probe_codes=40")
    assert isinstance(done.exception, EngineError)
    assert "answers are crossed" in str(done.exception)
    assert not (tmp_path / "run" / "evaluations.jsonl").exists()


@pytest.mark.slow
def test_a_late_answer_is_asked_for_again_and_counted(server: Double, tmp_path: Path) -> None:
    server.reset(fault="late", draws=3)
    done = train_with(server, tmp_path / "run", "rollout.server.request_timeout_s=3")
    assert done.exit_code == 0, done.exception
    assert check_proven(tmp_path / "run")[-1]["engine/late"] > 0


def test_a_server_of_another_model_is_named_before_training(tmp_path: Path) -> None:
    codes = load_policy("llasa", resolve_path("builtin:tiny-llasa")).codebook_size
    small_llasa(num_codes=codes).save_pretrained(str(tmp_path / "other"))
    with running_double(DOUBLE, str(tmp_path / "other"), tmp_path) as double:
        done = train_with(double, tmp_path / "run")
    assert isinstance(done.exception, SyncError)
    assert "has other speech ids or another length than the model that is served" in str(done.exception)


def test_a_run_starts_its_server_and_ends_it(tmp_path: Path) -> None:
    done = train_with(None, tmp_path / "run")
    assert done.exit_code == 0, done.exception
    check_proven(tmp_path / "run")
    log = (tmp_path / "run" / "servers" / "0.log").read_text()
    (url,) = {word for word in log.split() if word.startswith("http://") and word.count("/") == 2}
    with pytest.raises(httpx2.ConnectError):
        httpx2.get(f"{url}/health")


@pytest.fixture
def spoilt_python(tmp_path: Path) -> Path:
    """Told to start our server, it starts the double."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nshift 4\nPYTHONPATH="{PATH}" exec {sys.executable} {DOUBLE} "$@"\n')
    python.chmod(0o755)
    return python


@pytest.mark.slow
@pytest.mark.parametrize("fault", [{"since": 2}, {"draws": 4}], ids=["within a load", "within a batch"])
def test_s64_a_server_of_the_run_that_dies_comes_back_and_is_proven(
    spoilt_python: Path, tmp_path: Path, fault: dict[str, int]
) -> None:
    once = tmp_path / "died"
    text = json.dumps({"fault": "dies", "once": str(once), **fault}).replace('"', '\\"')
    done = train_with(
        None,
        tmp_path / "run",
        f"rollout.server.python='{spoilt_python}'",
        f'rollout.server.env={{TTS_DOUBLE_FAULT="{text}"}}',
        "rollout.server.retries=1",
        "rollout.sync.max_retries=1",
    )
    assert done.exit_code == 0, done.exception
    assert once.exists()
    rows = check_proven(tmp_path / "run")
    assert rows[-1]["engine/reloads"] == (1 if "draws" in fault else 0)


def command(run: Path, server: str, *settings: str) -> list[str]:
    place = f"rollout.server.urls=['{server}']"
    return [sys.executable, "-m", "elocution", *arguments(run, [*SETTINGS, place, *settings])]


@pytest.mark.slow
def test_s64_a_server_killed_once_mid_run_and_started_again_gets_its_weights_and_the_run_ends_as_without(
    server: Double, tmp_path: Path
) -> None:
    run, whole = tmp_path / "run", tmp_path / "whole"
    assert train_with(server, whole, ALONE).exit_code == 0
    environment = os.environ | {"PYTHONPATH": PATH}
    port = find_free_port("127.0.0.1")
    serve = [sys.executable, str(DOUBLE), "--port", str(port), "--model", "builtin:tiny-llasa"]
    url = f"http://127.0.0.1:{port}"
    first = subprocess.Popen(serve, env=environment)
    try:
        wait_for(lambda: is_healthy(url))
        with killed_at_exit(command(run, url, ALONE, "rollout.sync.max_retries=2")) as process:
            wait_for(lambda: (run / "metrics.jsonl").exists())
            first.send_signal(signal.SIGKILL)
            first.wait()
            first = subprocess.Popen(serve, env=environment)
            _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors.decode()
    finally:
        first.kill()
        first.wait()
    check_proven(run)
    check_same_training(run, whole)


@pytest.mark.slow
def test_s64_s76_a_run_killed_within_a_sync_goes_on_with_proven_weights(server: Double, tmp_path: Path) -> None:
    run, whole = tmp_path / "run", tmp_path / "whole"
    assert train_with(server, whole, ALONE).exit_code == 0
    server.reset(fault="hangs", since=2)
    with killed_at_exit(command(run, server.url, ALONE)):
        wait_for(lambda: server.loads >= 3)
    last = VersionStore(run / "sync").last_proven()
    assert last is not None
    assert last.manifest.version == 0
    server.reset()
    httpx2.post(f"{server.url}/pause_generation", json={})  # as the run had left it
    resumed = CliRunner().invoke(app, ["train", "--resume", "--output-dir", str(run)])
    assert resumed.exit_code == 0, resumed.exception
    check_proven(run)
    check_same_training(run, whole)


def is_healthy(url: str) -> bool:
    try:
        return httpx2.get(f"{url}/health").is_success
    except httpx2.TransportError:
        return False
