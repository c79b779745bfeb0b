"""A scorer for the pool tests that does what its task says; importable by worker processes."""

import os
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

__all__ = ["build", "build_failing", "build_on", "obey"]


def build() -> Callable[[str], str]:
    return obey


def build_on(device: str, builds: Path) -> Callable[[str], str]:
    """Answers with its device and process, whatever it is asked but what `obey` knows to fail; leaves a line in `builds`."""
    with builds.open("a") as lines:
        lines.write(f"{device} {os.getpid()}\n")
    return partial(_obey_on, device)


def _obey_on(device: str, task: str) -> str:
    obey(task)
    return f"{device} {os.getpid()}"


def build_failing() -> Callable[[str], str]:
    raise OSError("the model file is missing")


def obey(task: str) -> str:
    """`kill`, `exit`, `raise` and `hang` fail; `once PATH` is killed at the first call, `touch PATH` leaves a file; others return in capitals."""
    command, _, argument = task.partition(" ")
    if command == "kill" or (command == "once" and not _seen_before(Path(argument))):
        os.kill(os.getpid(), signal.SIGKILL)
    if command == "exit":
        os._exit(3)
    if command == "raise":
        raise ValueError(f"cannot score {argument}")
    if command == "hang":
        time.sleep(3600)
    if command == "span":
        started = time.monotonic()
        time.sleep(float(argument))
        return f"{started} {time.monotonic()} {os.getpid()}"
    if command == "touch":
        Path(argument).touch()
    if command == "pid":
        return str(os.getpid())
    return task.upper()


def _seen_before(path: Path) -> bool:
    seen = path.exists()
    path.touch()
    return seen
