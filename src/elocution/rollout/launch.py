"""Engine servers: one that runs elsewhere and is known by its URL, or a child that is started, watched and stopped.

Knows HTTP health checks and processes, no engine.
"""

import logging
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Protocol, Self

import httpx2

from elocution.errors import EngineError, EngineUnavailable
from elocution.files import reporting_disk_errors
from elocution.rollout import watchdog

__all__ = ["LaunchedServer", "RemoteServer", "Server", "ServerLaunch", "find_free_port"]

logger = logging.getLogger(__name__)

_POLL_S = 0.25
_PROGRESS_S = 10.0
_LOG_TAIL_LINES = 20
# By these `torchrun` and `accelerate launch` tell a process its place among those of a run; a server is none of them.
_PLACE = re.compile(r"((LOCAL|GROUP|ROLE)_)?(RANK|WORLD_SIZE)|ROLE_NAME|MASTER_(ADDR|PORT)|TORCHELASTIC_.*")


class Server(Protocol):
    """Something that answers at `url`."""

    @property
    def url(self) -> str:
        """Scheme, host and port, without a slash at the end."""

    def start(self) -> None:
        """Returns once the server answers. Raises: EngineUnavailable if it does not in time."""

    def revive(self) -> None:
        """After a failed call: returns once the server answers again, started anew if it is ours and has died.

        Raises: EngineUnavailable if it does not in time, or has died too often.
        """

    def stop(self) -> None:
        """Ends the server if it is ours; may be called twice."""


class RemoteServer:
    """A server that somebody else runs."""

    def __init__(self, url: str, *, health_path: str = "/health", patience_s: float = 60.0) -> None:
        """`patience_s` is how long to wait for an answer, seconds."""
        self.url = url.rstrip("/")
        self._health_path, self._patience_s = health_path, patience_s

    def start(self) -> None:
        self.revive()

    def revive(self) -> None:
        reason = _wait_until_healthy(self.url + self._health_path, self._patience_s, lambda: None)
        if reason is not None:
            raise EngineUnavailable(
                f"nothing healthy answers at {self.url} after {self._patience_s:g} s ({reason}); "
                "is the server running, and is the URL right?"
            )

    def stop(self) -> None: ...


@dataclass(frozen=True)
class ServerLaunch:
    """How to start a server.

    `command` gives the program and its arguments for a port; `environment` is added to this process's, which is handed on
    without a launcher's variables, None removes a variable. Units: seconds. `grace_s` is the time between SIGTERM and SIGKILL.
    """

    command: Callable[[int], Sequence[str]]
    environment: Mapping[str, str | None]
    host: str = "127.0.0.1"
    port: int = 0
    health_path: str = "/health"
    start_timeout_s: float = 600.0
    hang_timeout_s: float = 60.0
    grace_s: float = 10.0
    max_restarts: int = 3
    first_backoff_s: float = 1.0


class LaunchedServer:
    """A server that runs as a child of this process, with its output in `log_path`; ends when this process does.

    Use as a context manager, or call `stop`. Not for use in two threads at once.
    """

    def __init__(self, launch: ServerLaunch, log_path: Path) -> None:
        self._launch, self.log_path = launch, log_path
        self._port = launch.port or find_free_port(launch.host)
        self._process: subprocess.Popen[bytes] | None = None
        self.restarts = 0

    @property
    def url(self) -> str:
        return f"http://{self._launch.host}:{self._port}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Starts the server, unless it runs, and waits until it is healthy; its log grows at the end.

        Raises: EngineError if the port is in use; EngineUnavailable, with the end of the log, if the server exits or is
        not healthy in time.
        """
        if not self._is_running():
            self.stop()  # takes leave of one that has died
            self._spawn()
        try:
            reason = self._wait(self._launch.start_timeout_s)
        except BaseException:
            self.stop()
            raise
        if reason is not None:
            self.stop()
            raise EngineUnavailable(f"the server at {self.url} did not start: {reason}\n{self._log_tail()}")

    def revive(self) -> None:
        if self._is_running():
            reason = self._wait(self._launch.hang_timeout_s)
            if reason is None:
                return
            self.stop()
        while True:
            if self.restarts >= self._launch.max_restarts:
                raise EngineUnavailable(
                    f"the server at {self.url} died and was started again {self.restarts} times already; "
                    f"its log is {self.log_path}\n{self._log_tail()}"
                )
            delay = self._launch.first_backoff_s * 2**self.restarts
            self.restarts += 1
            logger.warning(
                "the server at %s died; start %d of %d again in %g s",
                self.url,
                self.restarts,
                self._launch.max_restarts,
                delay,
            )
            time.sleep(delay)
            try:
                self.start()
            except EngineUnavailable as error:
                logger.warning("%s", error)
            else:
                return

    def stop(self) -> None:
        if self._process is None:
            return
        process, self._process = self._process, None
        if process.stdin is not None:
            with suppress(BrokenPipeError):
                process.stdin.close()
        process.wait()

    def _spawn(self) -> None:
        _check_port_is_free(self._launch.host, self._port)
        command = list(self._launch.command(self._port))
        changes = self._launch.environment
        own = {key: value for key, value in os.environ.items() if not _PLACE.fullmatch(key)}
        environment = {key: value for key, value in own.items() if key not in changes}
        environment |= {key: value for key, value in changes.items() if value is not None}
        with reporting_disk_errors(self.log_path):
            self.log_path.parent.mkdir(parents=True, exist_ok=True)
            log: IO[bytes] = self.log_path.open("ab")
        logger.info("starting %s, log in %s", " ".join(command), self.log_path)
        with log:
            self._process = subprocess.Popen(
                [sys.executable, "-I", str(watchdog.__file__), str(self._launch.grace_s), *command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,  # Ctrl-C is for this process, which then stops the server itself
            )

    def _is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def _wait(self, limit_s: float) -> str | None:
        return _wait_until_healthy(self.url + self._launch.health_path, limit_s, self._how_it_ended)

    def _how_it_ended(self) -> str | None:
        status = self._process.poll() if self._process else None
        return None if status is None else f"it exited with status {status}"

    def _log_tail(self) -> str:
        lines = self.log_path.read_text(encoding="utf-8", errors="replace").splitlines()[-_LOG_TAIL_LINES:]
        return "\n".join([f"the end of {self.log_path}:", *(f"  {line}" for line in lines)])


def find_free_port(host: str) -> int:
    """A port of `host` that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port


def _check_port_is_free(host: str, port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise EngineError(
                f"cannot start a server at {host}:{port}: {error.strerror or error}; "
                "end what listens there, choose another port, or 0 for any free one"
            ) from error


def _wait_until_healthy(url: str, limit_s: float, how_it_ended: Callable[[], str | None]) -> str | None:
    """None once `url` answers 200, else why it did not in `limit_s` seconds."""
    started = time.monotonic()
    reported = started
    reason = "no answer"
    with httpx2.Client(timeout=5.0, trust_env=False) as client:
        while True:
            if (ended := how_it_ended()) is not None:
                return ended
            try:
                status = client.get(url).status_code
            except httpx2.TransportError as error:
                reason = str(error) or type(error).__name__
            else:
                if status == httpx2.codes.OK:
                    return None
                reason = f"status {status}"
            now = time.monotonic()
            if now - started >= limit_s:
                return f"not healthy after {limit_s:g} s ({reason})"
            if now - reported >= _PROGRESS_S:
                reported = now
                logger.info("waiting for %s: %.0f of at most %.0f s (%s)", url, now - started, limit_s, reason)
            time.sleep(_POLL_S)
