import pytest

from elocution.errors import WorldError
from elocution.train.launcher import Place, asked_of_accelerate, find_place
from elocution.train.world import ALONE, OneProcess, dealt_back, failing_together, share

LAUNCH = ["/usr/bin/python", "/usr/bin/accelerate", "launch", "--cpu", "--num_processes", "2", "-m", "elocution"]
ON_CPU = {"ACCELERATE_USE_CPU": "True", "MASTER_ADDR": "127.0.0.1"}  # what accelerate sets for such a launch


def test_without_a_launcher_there_is_one_process() -> None:
    assert find_place({}, ["bash"]) == Place(0, 1, 0, 1)


def test_the_place_is_what_torchrun_says() -> None:
    environment = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}
    assert find_place(environment, ["torchrun"]) == Place(5, 8, 1, 4)


def test_one_process_where_accelerate_was_asked_for_two_is_an_error() -> None:
    with pytest.raises(WorldError, match=r"asked for 2 processes and started one.*torchrun --nproc-per-node 2"):
        find_place(ON_CPU, LAUNCH)
    assert asked_of_accelerate(ON_CPU, [*LAUNCH[:4], "--num-processes=3"]) == 3
    assert asked_of_accelerate(ON_CPU, LAUNCH[:4]) == 1
    assert asked_of_accelerate({}, LAUNCH) == 1
    assert find_place(ON_CPU, [*LAUNCH[:4], "--num_processes", "1"]) == Place()
    both = ON_CPU | {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
    assert find_place(both, LAUNCH) == Place(1, 2, 1, 2)


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"WORLD_SIZE": "2"}, "asks for 2 processes, but RANK or LOCAL_RANK"),
        ({"WORLD_SIZE": "two"}, "WORLD_SIZE = 'two' must be a number"),
        ({"WORLD_SIZE": "0"}, "must be 1 or more"),
        ({"WORLD_SIZE": "2", "RANK": "2", "LOCAL_RANK": "0"}, "must lie in 0 to 1"),
    ],
)
def test_variables_that_contradict_each_other_are_refused(environment: dict[str, str], said: str) -> None:
    with pytest.raises(WorldError, match=said):
        find_place(environment, ["bash"])


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("count", [0, 1, 4, 7])
def test_what_was_shared_comes_back_in_order(size: int, count: int) -> None:
    shares = [share(OneProcess(rank, size), list(range(count))) for rank in range(size)]
    assert dealt_back(shares) == list(range(count))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_one_process_agrees_with_itself_and_keeps_its_errors() -> None:
    assert ALONE.gather("value") == ["value"]
    with pytest.raises(ZeroDivisionError), failing_together(ALONE):
        _ = 1 / 0
