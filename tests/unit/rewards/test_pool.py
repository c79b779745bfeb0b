"""The scoring pool under what workers do in the field: die, hang, raise, fail to start, outlive their parent."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from obedient_worker import build, build_failing, build_on

from elocution.errors import RewardUnavailable
from elocution.rewards.pool import ScoringPool


@pytest.fixture(scope="module")
def pool() -> Iterator[ScoringPool[str, str]]:
    with ScoringPool(build, workers=2, timeout_s=120.0) as pool:
        yield pool


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"


def _wait_until_gone(pids: list[int]) -> None:
    deadline = time.monotonic() + 20
    while any(_is_running(pid) for pid in pids):
        assert time.monotonic() < deadline, f"still running: {pids}"
        time.sleep(0.02)


def test_results_come_in_the_order_of_the_tasks(pool: ScoringPool[str, str]) -> None:
    tasks = [f"task {index}" for index in range(40)]
    assert pool.map(tasks) == [task.upper() for task in tasks]


def test_no_task_starts_no_process() -> None:
    with ScoringPool(build_failing) as pool:
        assert pool.map([]) == []


def test_s04_workers_score_at_the_same_time(pool: ScoringPool[str, str]) -> None:
    spans = [str(span).split() for span in pool.map(["span 0.4"] * 4)]
    assert len({pid for _, _, pid in spans}) == 2
    first, second = ([s for s in spans if s[2] == pid] for pid in sorted({pid for _, _, pid in spans}))
    assert float(first[0][0]) < float(second[0][1])
    assert float(second[0][0]) < float(first[0][1])


def test_s02_s09_an_exception_is_the_result_of_its_own_task_only(pool: ScoringPool[str, str]) -> None:
    first, failed, last = pool.map(["one", "raise three", "six"])
    assert (first, last) == ("ONE", "SIX")
    assert isinstance(failed, ValueError)
    assert str(failed) == "cannot score three"


@pytest.mark.parametrize(("command", "code"), [("kill", -9), ("exit", 3)])
def test_a_dead_worker_costs_its_own_task_only(pool: ScoringPool[str, str], command: str, code: int) -> None:
    results = pool.map(["one", command, "three", "six"])
    assert [results[0], *results[2:]] == ["ONE", "THREE", "SIX"]
    assert isinstance(results[1], RewardUnavailable)
    assert f"exit code {code}" in str(results[1])


def test_a_task_whose_worker_died_once_is_tried_again(pool: ScoringPool[str, str], tmp_path: Path) -> None:
    task = f"once {tmp_path / 'mark'}"
    assert pool.map([task]) == [task.upper()]


def test_a_worker_killed_between_calls_is_replaced(pool: ScoringPool[str, str]) -> None:
    pid = int(str(pool.map(["pid"])[0]))
    os.kill(pid, signal.SIGKILL)
    assert pool.map(["one", "three"]) == ["ONE", "THREE"]
    _wait_until_gone([pid])
    assert pool.map(["six"]) == ["SIX"]


def test_a_submitted_task_is_worked_on_while_others_are_still_to_come(
    pool: ScoringPool[str, str], tmp_path: Path
) -> None:
    first = pool.submit(f"touch {tmp_path / 'begun'}")
    deadline = time.monotonic() + 60
    while not (tmp_path / "begun").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    second = pool.submit("six")
    assert second.wait(60)
    assert first.wait(60)
    assert second.result() == "SIX"


def test_waiting_for_a_task_has_a_limit_and_may_go_on(pool: ScoringPool[str, str]) -> None:
    slow = pool.submit("span 0.5")
    assert not slow.wait(0.01)
    assert slow.wait(None)
    assert len(str(slow.result()).split()) == 3


def test_s02_a_submitted_task_that_fails_twice_gives_its_reason(pool: ScoringPool[str, str], tmp_path: Path) -> None:
    failed, once = pool.submit("raise three"), pool.submit(f"once {tmp_path / 'mark'}")
    assert failed.wait(60)
    assert isinstance(failed.result(), ValueError)
    assert once.wait(60)
    assert once.result() == f"once {tmp_path / 'mark'}".upper()


def test_tasks_may_come_from_several_threads(pool: ScoringPool[str, str]) -> None:
    with ThreadPoolExecutor(4) as threads:
        batches = [[f"task {thread} {index}" for index in range(10)] for thread in range(4)]
        assert list(threads.map(pool.map, batches)) == [[task.upper() for task in batch] for batch in batches]


def test_processes_share_out_the_devices_and_one_that_replaces_another_has_its_device(tmp_path: Path) -> None:
    builds = tmp_path / "builds"
    factories = [partial(build_on, device, builds) for device in ("fake:0", "fake:1")]
    with ScoringPool(*factories, workers=4, timeout_s=120.0) as pool:
        _wait_for_lines(builds, pool, 4)
        first = [line.split() for line in builds.read_text().splitlines()]
        assert sorted(device for device, _ in first) == ["fake:0"] * 2 + ["fake:1"] * 2
        assert set(map(str, pool.map(["one"] * 40))) <= {" ".join(one) for one in first}  # each is built once
        pool.map([f"once {tmp_path / 'mark'}"])
        _wait_for_lines(builds, pool, 5)
        (killed,) = [device for device, pid in first if not _is_running(int(pid))]
        assert [line.split()[0] for line in builds.read_text().splitlines()[4:]] == [killed]


def _wait_for_lines(path: Path, pool: ScoringPool[str, str], count: int) -> None:
    deadline = time.monotonic() + 60
    while len(path.read_text().splitlines() if path.exists() else []) < count:
        assert time.monotonic() < deadline
        pool.map(["span 0.05"])


def test_s05_a_hanging_scorer_costs_its_own_task_only() -> None:
    with ScoringPool(build, workers=2, timeout_s=0.5) as pool:
        one, hung, three = pool.map(["one", "hang", "three"])
    assert (one, three) == ("ONE", "THREE")
    assert isinstance(hung, RewardUnavailable)
    assert "longer than 0.5 s" in str(hung)


def test_scorers_that_cannot_be_built_say_why() -> None:
    with ScoringPool(build_failing, workers=1) as pool, pytest.raises(RewardUnavailable, match="model file is missing"):
        pool.map(["one"])


def test_threads_share_the_workers_and_get_each_their_own_results() -> None:
    with ScoringPool(build, workers=2, timeout_s=120.0) as pool, ThreadPoolExecutor(4) as threads:
        tasks = [[f"task {thread} {index}" for index in range(10)] for thread in range(4)]
        assert list(threads.map(pool.map, tasks)) == [[task.upper() for task in own] for own in tasks]
        assert len(set(pool.map(["pid"] * 20))) <= 2


def test_ended_workers_are_not_started_again() -> None:
    with ScoringPool(build, workers=1, timeout_s=120.0) as pool:
        assert pool.map(["one"]) == ["ONE"]
    with pytest.raises(RewardUnavailable, match="have been ended"):
        pool.map(["one"])
    with pool:
        assert pool.map(["one"]) == ["ONE"]


def test_no_worker_outlives_the_context() -> None:
    with pytest.raises(KeyError), ScoringPool(build, workers=2, timeout_s=120.0) as pool:  # noqa: PT012
        pids = [int(str(pid)) for pid in pool.map(["pid"] * 4)]
        raise KeyError
    _wait_until_gone(pids)


PARENT = """
import sys
from obedient_worker import build
from elocution.rewards.pool import ScoringPool
if __name__ == "__main__":
    with ScoringPool(build, workers=2, timeout_s=60.0) as pool:
        spans = pool.map(["span 0.3"] * 4)
        print(*{span.split()[2] for span in spans}, flush=True)
        pool.map(["hang"] * 2)
"""


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGKILL])
def test_no_worker_outlives_a_killed_parent(tmp_path: Path, ending: signal.Signals) -> None:
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    with subprocess.Popen([sys.executable, script], env=environment, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(pids) == 2
        parent.send_signal(ending)
    _wait_until_gone(pids)


def test_workers_import_no_torch() -> None:
    program = (
        "import sys, elocution.rewards.pool, elocution.rewards.wer_nll, elocution.measures.pocketsphinx, "
        "elocution.measures.hama; sys.exit(any(name in sys.modules for name in ('torch', 'transformers', 'scipy')))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
