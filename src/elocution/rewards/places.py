"""Which of several places a worker process has: taken when it starts, and free again when it ends, however it ends."""

import fcntl
import os
import time
from pathlib import Path

from elocution.errors import RewardUnavailable

__all__ = ["take_place"]

_LOOK_AGAIN_S = 0.05


def take_place(locks: Path, count: int, *, wait_s: float) -> int:
    """The lowest of `count` places that no other process has; this one has it for as long as it lives.

    The system keeps the places, as locks on the bytes of the file `locks`, so that not even a killed process keeps its own.

    Raises: RewardUnavailable if none is free within `wait_s` seconds.
    """
    descriptor = os.open(locks, os.O_RDWR)  # never closed: a lock ends with the process's first close of the file
    deadline = time.monotonic() + wait_s
    while True:
        for place in range(count):
            try:
                fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
                return place
            except (BlockingIOError, PermissionError):  # which of the two depends on the system
                continue
        if time.monotonic() >= deadline:
            raise RewardUnavailable(f"none of the {count} places for scoring processes became free in {wait_s:g} s")
        time.sleep(_LOOK_AGAIN_S)
