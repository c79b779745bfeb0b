"""The pipeline with scripted stages: order, bounds, time, and every way to end."""

import signal
import threading
import time
from collections.abc import Callable, Generator, Iterator

import pytest

from elocution.train.pipeline import Inputs, Pipeline, Stage

Work = Callable[[Inputs[int]], Generator[int, None, None]]


def sleeping(seconds: float) -> Work:
    def work(inputs: Inputs[int]) -> Generator[int, None, None]:
        for item in inputs:
            time.sleep(seconds)
            yield item

    return work


def failing_at(bad: int, error: BaseException) -> Work:
    def work(inputs: Inputs[int]) -> Generator[int, None, None]:
        for item in inputs:
            if item == bad:
                raise error
            yield item

    return work


def waiting_forever(inputs: Inputs[int]) -> Generator[int, None, None]:
    """Waits for something that never comes, as for a scorer that hangs."""
    next(inputs)
    while True:
        time.sleep(0.01)
        inputs.check()
    yield 0


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    _wait_until(lambda: set(threading.enumerate()) <= before)


def run(pipeline: Pipeline[int, int], count: int) -> list[int | None]:
    with pipeline:
        for item in range(count):
            pipeline.put(item)
        return [pipeline.get() for _ in range(count)]


def test_results_come_in_the_order_of_the_jobs() -> None:
    def uneven(inputs: Inputs[int]) -> Generator[int, None, None]:
        for item in inputs:
            time.sleep(0.003 * (item % 3))
            yield item

    stages = [Stage(name, uneven, 2) for name in ("a", "b", "c")]
    assert run(Pipeline(stages, consumer="d"), 30) == list(range(30))


def test_a_stage_may_give_many_results_for_one_job_and_one_for_many() -> None:
    def split(inputs: Inputs[int]) -> Generator[int, None, None]:
        for item in inputs:
            yield from (item,) * 4

    def join(inputs: Inputs[int]) -> Generator[int, None, None]:
        while True:
            yield sum(next(inputs) for _ in range(4))

    pipeline: Pipeline[int, int] = Pipeline([Stage("split", split, 3), Stage("join", join, 1)], consumer="c")
    assert run(pipeline, 5) == [0, 4, 8, 12, 16]


def test_no_more_results_wait_than_there_is_room_for() -> None:
    begun: list[int] = []

    def work(inputs: Inputs[int]) -> Generator[int, None, None]:
        for item in inputs:
            begun.append(item)
            yield item

    pipeline: Pipeline[int, int] = Pipeline([Stage("a", work, 2), Stage("b", sleeping(0), 3)], consumer="c")
    with pipeline:
        for item in range(50):
            pipeline.put(item)
        # Behind a wait 2 and behind b 3; each stage holds one more that it cannot hand on.
        _wait_until(lambda: len(begun) == 2 + 3 + 2)
        time.sleep(0.05)
        assert len(begun) == 7
        assert pipeline.get() == 0
        _wait_until(lambda: len(begun) == 8)


def test_take_gives_all_that_is_there_up_to_a_limit() -> None:
    sizes: list[int] = []

    def work(inputs: Inputs[int]) -> Generator[int, None, None]:
        while True:
            items = inputs.take(4)
            sizes.append(len(items))
            yield from items

    pipeline: Pipeline[int, int] = Pipeline([Stage("a", work, 20)], consumer="b")
    for item in range(10):  # before the stage runs
        pipeline.put(item)
    with pipeline:
        assert [pipeline.get() for _ in range(10)] == list(range(10))
    assert sizes == [4, 4, 2]


def test_the_slowest_stage_sets_the_time_and_the_others_are_idle_beside_it() -> None:
    """Scripted stages of 5, 10, 60 and 15 ms: 40 jobs take 2.4 s of the third, and 30 ms before it and after it."""
    seconds = {"rollout": 0.005, "decode": 0.01, "score": 0.06}
    pipeline: Pipeline[int, int] = Pipeline(
        [Stage(name, sleeping(each), 2) for name, each in seconds.items()], consumer="learn"
    )
    started = time.perf_counter()
    with pipeline:
        for item in range(40):
            pipeline.put(item)
        for item in range(40):
            assert pipeline.get() == item
            time.sleep(0.015)
        wall = time.perf_counter() - started
        busy = pipeline.busy_s()
    # Sleeps last longer on a busy machine, the slowest stage's as well as the whole: their ratio holds.
    assert busy["score"] >= 40 * 0.06
    assert wall <= 1.05 * busy["score"]
    assert sum(busy.values()) > 1.2 * wall
    for name, each in seconds.items():
        assert 40 * each <= busy[name] <= wall
    assert busy["rollout"] < busy["decode"] < busy["score"]


def test_a_stage_that_waits_is_not_busy() -> None:
    pipeline: Pipeline[int, int] = Pipeline([Stage("a", sleeping(0), 1)], consumer="b")
    with pipeline:
        time.sleep(0.2)
        busy = pipeline.busy_s()
    assert busy["a"] < 0.1  # before its first job it had nothing to do
    assert busy["b"] >= 0.2  # the caller slept outside of `get`


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("error", [ValueError("broken"), SystemExit(3)], ids=["error", "exit"])
def test_the_first_error_of_any_stage_ends_all_and_is_raised_with_its_traceback(
    place: int, error: BaseException
) -> None:
    works = [sleeping(0.001)] * 3
    works[place] = failing_at(5, error)
    pipeline: Pipeline[int, int] = Pipeline([Stage(str(n), work, 2) for n, work in enumerate(works)], consumer="c")
    with pytest.raises(type(error)) as caught, pipeline:  # noqa: PT012
        for item in range(20):
            pipeline.put(item)
        for item in range(20):
            assert pipeline.get() == item
    assert caught.value is error
    assert "failing_at" in [entry.frame.code.raw.co_qualname.split(".")[0] for entry in caught.traceback]


def test_an_error_frees_stages_that_wait_for_room_for_work_or_for_something_else() -> None:
    stages = [
        Stage("full", sleeping(0), 1),
        Stage("failing", failing_at(1, RuntimeError("broken")), 1),
        Stage("hanging", waiting_forever, 1),
        Stage("hungry", sleeping(0), 1),
    ]
    pipeline: Pipeline[int, int] = Pipeline(stages, consumer="c")
    with pytest.raises(RuntimeError, match="broken"), pipeline:  # noqa: PT012
        for item in range(10):
            pipeline.put(item)
        pipeline.get()


def test_put_raises_the_error_of_a_stage_too() -> None:
    pipeline: Pipeline[int, int] = Pipeline([Stage("a", failing_at(0, ValueError("broken")), 1)], consumer="b")
    with pytest.raises(ValueError, match="broken"), pipeline:  # noqa: PT012
        pipeline.put(0)
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            pipeline.put(1)
            time.sleep(0.01)


def test_an_error_of_the_caller_ends_all_stages() -> None:
    pipeline: Pipeline[int, int] = Pipeline([Stage("a", sleeping(0), 1), Stage("b", waiting_forever, 1)], consumer="c")
    with pytest.raises(KeyError), pipeline:  # noqa: PT012
        for item in range(10):
            pipeline.put(item)
        raise KeyError


def test_an_error_while_the_caller_is_ending_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def work(inputs: Inputs[int]) -> Generator[int, None, None]:
        try:
            yield next(inputs)
        finally:
            raise ValueError("cannot close")

    with Pipeline[int, int]([Stage("a", work, 1)], consumer="b"):
        pass
    assert "the stage a failed while the run was ending: ValueError('cannot close')" in caplog.text


def test_get_stops_when_it_is_asked_to() -> None:
    pipeline: Pipeline[int, int] = Pipeline([Stage("a", waiting_forever, 1)], consumer="b")
    asked = threading.Event()
    with pipeline:
        pipeline.put(0)
        threading.Timer(0.05, asked.set).start()
        assert pipeline.get(asked.is_set) is None


def test_an_interrupt_in_the_caller_ends_all_stages() -> None:
    pipeline: Pipeline[int, int] = Pipeline([Stage("a", waiting_forever, 1)], consumer="b")
    main = threading.main_thread().ident
    assert main is not None
    # A shell starts what it runs in the background with the signal ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt), pipeline:  # noqa: PT012
            pipeline.put(0)
            threading.Timer(0.05, signal.pthread_kill, (main, signal.SIGINT)).start()
            pipeline.get()
    finally:
        signal.signal(signal.SIGINT, before)


def _wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.005)
