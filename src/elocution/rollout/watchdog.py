"""Runs a command and ends it, with all that it started, once standard input closes.

Whoever holds the other end of that pipe so takes the command along, however it ends itself, SIGKILL included. Started as
a file, `python -I watchdog.py GRACE_S COMMAND…`: it must import nothing but the standard library.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress

__all__ = ["main"]

_POLL_S = 0.1


def main(grace_s: float, command: Sequence[str]) -> int:
    """The exit status of `command`, as a shell gives it; 127 if it cannot be run.

    Once standard input closes, its process group gets SIGTERM, and `grace_s` seconds later SIGKILL.
    """
    # A handler, unlike SIG_IGN, is not inherited by the command.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    try:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, process_group=0)
    except OSError as error:
        print(f"cannot run {command[0]}: {error.strerror or error}", file=sys.stderr, flush=True)
        return 127
    ended = threading.Event()
    threading.Thread(target=_wait_for_end_of_input, args=(ended,), daemon=True).start()
    while child.poll() is None and not ended.wait(_POLL_S):
        pass
    if child.returncode is None:
        _signal_group(child.pid, signal.SIGTERM)
        limit = time.monotonic() + grace_s
        while child.poll() is None and time.monotonic() < limit:
            time.sleep(_POLL_S)
    # What the command started and left behind goes too.
    _signal_group(child.pid, signal.SIGKILL)
    status = child.wait()
    return status if status >= 0 else 128 - status


def _wait_for_end_of_input(ended: threading.Event) -> None:
    while os.read(0, 1024):
        pass
    ended.set()


def _signal_group(group: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, number)


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), sys.argv[2:]))
