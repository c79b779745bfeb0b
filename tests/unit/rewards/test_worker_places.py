"""Places of worker processes: each has its own, and gives it up by ending in whatever way."""

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from elocution.errors import RewardUnavailable
from elocution.rewards.places import take_place

HOLDER = """
import sys, time
from pathlib import Path
from elocution.rewards.places import take_place
print(take_place(Path(sys.argv[1]), 3, wait_s=0), flush=True)
time.sleep(3600)
"""


@pytest.fixture
def locks(tmp_path: Path) -> Path:
    path = tmp_path / "locks"
    path.touch()
    return path


def test_a_place_is_taken_once_and_free_again_when_its_process_is_killed(locks: Path) -> None:
    with ExitStack() as stack:
        command = [sys.executable, "-c", HOLDER, str(locks)]
        held = [stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True)) for _ in range(3)]
        for process in held:
            stack.callback(process.kill)
        places = [int(process.stdout.readline()) for process in held if process.stdout]
        assert sorted(places) == [0, 1, 2]
        with pytest.raises(RewardUnavailable, match="none of the 3 places"):
            take_place(locks, 3, wait_s=0.1)
        held[0].kill()
        assert take_place(locks, 3, wait_s=5) == places[0]
