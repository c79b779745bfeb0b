"""Users of one engine in threads of their own: each draws what it would draw alone."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from sync_trainer import Trainer

from elocution.errors import EngineError, SyncError
from elocution.rollout.base import RolloutRequest, in_order
from elocution.rollout.sync.engine import SyncedEngine
from elocution.rollout.sync.shared import EngineUser, SharedEngine
from elocution.rollout.torch_engine import TorchEngine

ROUNDS = 6


def requests(trainer: Trainer) -> list[RolloutRequest]:
    return [RolloutRequest(probe.prompt_ids, ((1, 1), (1, 2)), 30) for probe in trainer.probes]


def test_s64_users_of_one_engine_draw_at_their_own_temperatures_while_others_draw_and_syncs_are_proven(
    make_trainer: Callable[..., Trainer], make_synced: Callable[..., SyncedEngine]
) -> None:
    trainer = make_trainer()
    shared = SharedEngine()
    shared.attach(make_synced(trainer))
    shared.publish(0)
    own = TorchEngine(trainer.policy, temperature=1.0, batch_size=16)
    own.publish(0)
    asked = requests(trainer)
    alone = {}
    for temperature in (0.5, 2.0):
        own.temperature = temperature
        alone[temperature] = own.generate(asked)
    together = threading.Barrier(3, timeout=30)

    def draw(temperature: float) -> None:
        user = EngineUser(shared, temperature=temperature)
        for _ in range(ROUNDS):
            together.wait()
            for found, expected in zip(in_order(asked, user.stream(asked)), alone[temperature], strict=True):
                for one, other in zip(found, expected, strict=True):
                    assert np.array_equal(one.ids, other.ids)
                    np.testing.assert_allclose(one.rollout_logprobs, other.rollout_logprobs, atol=1e-4)

    def publish() -> None:
        for version in range(1, ROUNDS + 1):
            together.wait()
            shared.publish(version)
            assert shared.metrics()["sync/probe_difference_max_nats"] < 1e-4

    with ThreadPoolExecutor(3) as pool:
        for future in [pool.submit(draw, 0.5), pool.submit(draw, 2.0), pool.submit(publish)]:
            future.result()


def test_a_version_that_the_engine_has_is_brought_again_only_after_a_failure(
    make_trainer: Callable[..., Trainer], make_synced: Callable[..., SyncedEngine]
) -> None:
    trainer = make_trainer()
    shared = SharedEngine()
    engine = make_synced(trainer)
    shared.attach(engine)
    shared.publish(0)
    proven = engine.status
    shared.publish(0)
    assert engine.status is proven
    shared.publish(1)
    assert shared.metrics()["sync/policy_version"] == 1


def test_a_stream_that_is_left_gives_the_turn_back(
    make_trainer: Callable[..., Trainer], make_synced: Callable[..., SyncedEngine]
) -> None:
    trainer = make_trainer()
    shared = SharedEngine()
    shared.attach(make_synced(trainer))
    shared.publish(0)
    stream = EngineUser(shared, temperature=1.0).stream(requests(trainer))
    next(stream)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(shared.publish, 1)
        with pytest.raises(TimeoutError):
            waiting.result(timeout=0.5)
        stream.close()
        waiting.result(timeout=30)


def test_an_engine_that_is_not_there_or_not_proven_is_not_drawn_from(
    make_trainer: Callable[..., Trainer], make_synced: Callable[..., SyncedEngine]
) -> None:
    trainer = make_trainer()
    shared = SharedEngine()
    user = EngineUser(shared, temperature=1.0)
    assert shared.metrics() == {}
    assert not shared.is_quarantined
    with pytest.raises(EngineError, match="has not been started"):
        user.publish(0)
    shared.attach(make_synced(trainer))
    with pytest.raises(SyncError, match="no weights have been published"):
        list(user.stream(requests(trainer)))
