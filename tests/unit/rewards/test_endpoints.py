"""Which server is asked: least loaded, not the one that just failed, none that is shut out."""

import pytest

from elocution.rewards.endpoints import Endpoints


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def _taken(endpoints: Endpoints, *avoid: str) -> str:
    url = endpoints.take(avoid)
    assert url is not None
    return url


def test_the_least_loaded_is_asked() -> None:
    endpoints = Endpoints(["a", "b", "c"])
    assert sorted(_taken(endpoints) for _ in range(3)) == ["a", "b", "c"]
    endpoints.succeeded("b")
    assert _taken(endpoints) == "b"


def test_equal_loads_take_turns() -> None:
    endpoints = Endpoints(["a", "b"])
    order = []
    for _ in range(6):
        order.append(_taken(endpoints))
        endpoints.succeeded(order[-1])
    assert order == ["a", "b"] * 3


def test_one_to_avoid_is_asked_only_if_there_is_no_other() -> None:
    endpoints = Endpoints(["a", "b"])
    assert [_taken(endpoints, "a") for _ in range(3)] == ["b"] * 3
    assert _taken(Endpoints(["a"]), "a") == "a"


def _fail(endpoints: Endpoints, times: int) -> None:
    for _ in range(times):
        endpoints.failed(_taken(endpoints))


def test_three_failures_in_a_row_shut_a_server_out_for_a_time_that_doubles() -> None:
    clock = Clock()
    endpoints = Endpoints(["a"], clock=clock)
    _fail(endpoints, 2)
    endpoints.succeeded(_taken(endpoints))
    _fail(endpoints, 3)
    for pause in (1.0, 2.0, 4.0):
        assert endpoints.take() is None
        clock.now += 0.99 * pause
        assert endpoints.take() is None
        clock.now += 0.02 * pause
        _fail(endpoints, 1)
    assert endpoints.take() is None


@pytest.mark.parametrize("failures", [10, 3000])
def test_no_server_is_shut_out_for_ever(failures: int) -> None:
    clock = Clock()
    endpoints = Endpoints(["a"], clock=clock)
    for _ in range(failures):
        clock.now += 30.0
        _fail(endpoints, 1)
    clock.now += 30.0
    assert endpoints.take() == "a"


def test_a_server_on_trial_gets_one_request_until_it_answers() -> None:
    clock = Clock()
    endpoints = Endpoints(["a"], clock=clock)
    _fail(endpoints, 3)
    clock.now += 1.5
    assert endpoints.take() == "a"
    assert endpoints.take() is None
    endpoints.succeeded("a")
    assert [endpoints.take() for _ in range(2)] == ["a", "a"]


def test_the_time_of_failure_is_that_of_the_last_server_to_fail() -> None:
    clock = Clock()
    endpoints = Endpoints(["a", "b"], clock=clock)
    endpoints.failed(_taken(endpoints, "b"))
    clock.now += 5.0
    assert endpoints.failing_for_s() == 0.0
    endpoints.failed(_taken(endpoints, "a"))
    clock.now += 2.0
    endpoints.failed(_taken(endpoints, "a"))
    assert endpoints.failing_for_s() == 2.0
    endpoints.succeeded(_taken(endpoints, "a"))
    assert endpoints.failing_for_s() == 0.0
