"""Real child processes and sockets: what starts, dies, hangs and is left behind."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

from elocution.errors import EngineError, EngineUnavailable
from elocution.rollout.launch import LaunchedServer, RemoteServer, ServerLaunch, find_free_port

SCRIPT = str(Path(__file__).with_name("health_server.py"))


def launch(*behaviour: str, **changes: Any) -> ServerLaunch:
    settings: dict[str, Any] = {"start_timeout_s": 20.0, "hang_timeout_s": 1.0, "grace_s": 1.0, "first_backoff_s": 0.05}
    return ServerLaunch(
        command=lambda port: [sys.executable, "-I", SCRIPT, str(port), *(behaviour or ("fine",))],
        environment={},
        **(settings | changes),
    )


def get(url: str) -> str:
    return httpx2.get(url, trust_env=False).text


def is_alive(pid: int) -> bool:
    """Whether a process exists and is no zombie that waits for its parent."""
    with suppress(FileNotFoundError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def eventually(condition: Callable[[], bool], limit_s: float = 10.0) -> bool:
    end = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def test_a_server_answers_logs_and_ends_with_its_context(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "server.log"
    with LaunchedServer(launch(), log) as server:
        pid = int(get(server.url))
        assert "hello from the server" in log.read_text()
    assert not is_alive(pid)
    server.stop()  # a second time does nothing


def test_stopping_ends_what_the_server_started_even_if_that_ignores_sigterm(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    with LaunchedServer(launch("child"), log) as server:
        pid = int(get(server.url))
        child = int(log.read_text().split("child ")[1].split()[0])
        assert is_alive(child)
    assert not is_alive(pid)
    assert eventually(lambda: not is_alive(child))


def test_the_server_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    code = f"""
import sys, time
from pathlib import Path
from elocution.rollout.launch import LaunchedServer, ServerLaunch
command = lambda port: [sys.executable, "-I", {SCRIPT!r}, str(port), "child"]
server = LaunchedServer(ServerLaunch(command, {{}}), Path({str(tmp_path / "server.log")!r}))
server.start()
print(server.url, flush=True)
time.sleep(600)
"""
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pid = int(get(parent.stdout.readline().strip()))
    child = int((tmp_path / "server.log").read_text().split("child ")[1].split()[0])
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    assert eventually(lambda: not is_alive(pid) and not is_alive(child))


def test_a_server_that_exits_is_an_error_with_the_end_of_its_log(tmp_path: Path) -> None:
    with pytest.raises(EngineUnavailable, match=r"exited with status 3(.|\n)*the model is too large"):
        LaunchedServer(launch("exits"), tmp_path / "server.log").start()


def test_a_program_that_does_not_exist_is_named(tmp_path: Path) -> None:
    absent = ServerLaunch(command=lambda port: ["/no/such/python", str(port)], environment={})
    with pytest.raises(EngineUnavailable, match=r"status 127(.|\n)*cannot run /no/such/python: No such file"):
        LaunchedServer(absent, tmp_path / "server.log").start()


def test_a_server_that_never_gets_healthy_is_stopped_at_the_limit(tmp_path: Path) -> None:
    server = LaunchedServer(launch("silent", start_timeout_s=0.6), tmp_path / "server.log")
    with pytest.raises(EngineUnavailable, match=r"not healthy after 0\.6 s \((status 503|.*refused)(.|\n)*hello"):
        server.start()
    with pytest.raises(httpx2.ConnectError):
        get(server.url)


def test_a_port_in_use_is_named_before_anything_starts(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(EngineError, match=rf"127\.0\.0\.1:{port}: Address already in use; .*another port"):
            LaunchedServer(launch(port=port), tmp_path / "server.log").start()
    assert not (tmp_path / "server.log").exists()


def test_a_dead_server_is_started_again_at_its_url_and_not_for_ever(tmp_path: Path) -> None:
    with LaunchedServer(launch(max_restarts=2), tmp_path / "server.log") as server:
        url, first = server.url, get(server.url)
        server.revive()
        assert get(url) == first  # it lives: nothing is started
        for expected in (1, 2):
            with pytest.raises(httpx2.RemoteProtocolError):
                get(url + "/die")
            server.revive()
            assert server.restarts == expected
            assert server.url == url
            assert get(url) != first
        with pytest.raises(httpx2.RemoteProtocolError):
            get(url + "/die")
        with pytest.raises(EngineUnavailable, match="started again 2 times already"):
            server.revive()


def test_a_restart_that_fails_is_followed_by_another(tmp_path: Path) -> None:
    server = LaunchedServer(launch("once", str(tmp_path / "marker")), tmp_path / "server.log")
    with pytest.raises(EngineUnavailable, match="status 4"):
        server.start()
    (tmp_path / "marker").unlink()
    server.revive()
    try:
        assert server.restarts == 2
        assert int(get(server.url)) > 0
    finally:
        server.stop()


def test_the_environment_is_added_to_and_taken_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELOCUTION_TEST_GONE", "1")
    for name in ("RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "TORCHELASTIC_RUN_ID"):  # of a process of torchrun
        monkeypatch.setenv(name, "1")
    show = "import os; print({k: v for k, v in os.environ.items() if k.startswith(('ELOCUTION_TEST', 'RANK', 'LOCAL_', 'MASTER_', 'TORCHEL'))})"
    server = LaunchedServer(
        ServerLaunch(
            command=lambda port: [sys.executable, "-c", show],
            environment={"ELOCUTION_TEST_NEW": "2", "ELOCUTION_TEST_GONE": None},
        ),
        tmp_path / "server.log",
    )
    with pytest.raises(EngineUnavailable, match=r"\{'ELOCUTION_TEST_NEW': '2'\}"):
        server.start()


def test_nothing_behind_a_url_is_said_within_the_patience() -> None:
    url = f"http://127.0.0.1:{find_free_port('127.0.0.1')}"
    with pytest.raises(EngineUnavailable, match=rf"nothing healthy answers at {url} after 0\.3 s .*refused.*URL right"):
        RemoteServer(url + "/", patience_s=0.3).start()
