import logging
import shutil
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from broken_engines import BrokenEngine
from numpy.typing import NDArray
from sync_trainer import Strategy, Trainer, loaded_engine

from elocution.errors import EngineError, StorageError, SyncError
from elocution.rollout.base import RolloutRequest
from elocution.rollout.sync.base import LoadReport, Probe
from elocution.rollout.sync.engine import SyncedEngine
from elocution.rollout.sync.loaded_engine import LoadedEngine
from elocution.rollout.sync.proof import GreedyProof, LogprobProof
from elocution.rollout.sync.store import VersionStore
from elocution.rollout.torch_engine import TorchEngine
from elocution.types import Completion

STRATEGIES: tuple[Strategy, ...] = ("adapter", "delta", "full")
FAULTS = ("no op", "old weights", "half the shards", "misnamed keys", "wrong scale")


def drawn_by(engine: Any, trainer: Trainer) -> list[Completion]:
    return [completion for group in engine.generate(requests(trainer)) for completion in group]


def requests(trainer: Trainer) -> list[RolloutRequest]:
    return [RolloutRequest(probe.prompt_ids, ((1, 1), (1, 2)), 20) for probe in trainer.probes]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_s62_s64_after_each_publish_the_engine_draws_what_the_trainer_would(
    make_trainer: Callable[..., Trainer], make_synced: Callable[..., SyncedEngine], strategy: Strategy
) -> None:
    trainer = make_trainer(strategy)
    synced = make_synced(trainer, strategy)
    drawn = []
    for version in (0, 1, 5):
        synced.publish(version)
        own = TorchEngine(trainer.policy, temperature=1.0, batch_size=16)
        own.publish(version)
        found, expected = drawn_by(synced, trainer), drawn_by(own, trainer)
        for one, other in zip(found, expected, strict=True):
            assert one.policy_version == version
            assert np.array_equal(one.ids, other.ids)
            np.testing.assert_allclose(one.rollout_logprobs, other.rollout_logprobs, atol=1e-4)
        drawn.append(np.concatenate([one.rollout_logprobs for one in found]))
        metrics = synced.metrics()
        assert metrics["sync/policy_version"] == version
        assert metrics["sync/probe_difference_max_nats"] < 1e-4
        assert metrics["sync/followed_share"] == pytest.approx(1, abs=0.01)
        assert metrics["sync/is_told"] == 1
        trainer.step()
    assert not any(len(one) == len(other) and np.array_equal(one, other) for one, other in pairwise(drawn))


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("fault", FAULTS)
def test_s62_s64_an_engine_that_loads_wrongly_is_caught_at_the_first_sync(
    make_trainer: Callable[..., Trainer], make_synced: Callable[..., SyncedEngine], strategy: Strategy, fault: str
) -> None:
    trainer = make_trainer(strategy)
    synced = make_synced(trainer, strategy, engine=BrokenEngine(trainer.base, fault))
    with pytest.raises(SyncError, match=r"not proven to have the rehearsal.*differ from the trainer's"):
        synced.publish(0)
    assert synced.status.policy_version is None
    assert synced.status.is_quarantined
    with pytest.raises(SyncError, match="quarantine"):
        synced.generate(requests(trainer))


@pytest.mark.parametrize("fault", FAULTS)
def test_s62_s64_an_engine_that_begins_to_load_wrongly_is_caught_at_once_however_little_has_changed(
    make_trainer: Callable[..., Trainer], make_synced: Callable[..., SyncedEngine], fault: str
) -> None:
    trainer = make_trainer()
    engine = BrokenEngine(trainer.base, fault, since=3)
    synced = make_synced(trainer, engine=engine)
    trainer.step()
    synced.publish(0)
    trainer.step(size=1e-6, seed=8)
    synced.publish(1)
    assert synced.metrics()["sync/followed_share"] == pytest.approx(1, abs=0.2)
    trainer.step(size=1e-6, seed=9)
    with pytest.raises(SyncError, match="after 1 attempts"):
        synced.publish(2)
    assert synced.status.policy_version == 1
    assert engine.loads == 4


def test_s64_a_skipped_sync_is_caught_though_the_values_are_within_the_bound(
    make_trainer: Callable[..., Trainer], make_synced: Callable[..., SyncedEngine]
) -> None:
    trainer = make_trainer()
    synced = make_synced(trainer, engine=BrokenEngine(trainer.base, "no op", since=2))
    synced.publish(0)
    trainer.step(size=1e-6)
    with pytest.raises(SyncError, match=r"show 0\.00 ± 0\.00 of the trainer's change"):
        synced.publish(1)


class NoisyNoOp(BrokenEngine):
    """Loads nothing any more, and rounds differently each time that it is asked."""

    def score(self, probes: Sequence[Probe]) -> list[NDArray[np.float32]]:
        generator = np.random.default_rng(self.loads)
        return [
            values + 2e-5 * generator.standard_normal(values.shape).astype(np.float32)
            for values in super().score(probes)
        ]


def test_s64_syncs_that_are_skipped_add_up_until_rounding_hides_them_no_more(
    make_trainer: Callable[..., Trainer], make_synced: Callable[..., SyncedEngine]
) -> None:
    trainer = make_trainer()
    synced = make_synced(trainer, engine=NoisyNoOp(trainer.base, "no op", since=2))
    synced.publish(0)
    told: list[float] = []

    def run() -> None:
        for version in range(1, 40):
            trainer.step(size=1e-7, seed=7)
            synced.publish(version)
            told.append(synced.metrics()["sync/is_told"])

    with pytest.raises(SyncError, match="of the trainer's change since"):
        run()
    assert len(told) > 2
    assert not any(told)
    assert synced.metrics()["sync/probe_difference_max_nats"] < 1e-4


def test_the_same_weights_again_are_no_sync_that_was_skipped(
    make_trainer: Callable[..., Trainer], make_synced: Callable[..., SyncedEngine]
) -> None:
    trainer = make_trainer()
    synced = make_synced(trainer)
    for version in (0, 1, 1):
        synced.publish(version)
        assert synced.status.policy_version == version
    assert "sync/followed_share" not in synced.metrics()


@pytest.mark.parametrize("fault", ["binds nothing", "leaves out one layer"])
def test_s63_an_adapter_that_is_bound_to_few_layers_shows_in_the_probes(
    make_trainer: Callable[..., Trainer], make_synced: Callable[..., SyncedEngine], fault: str
) -> None:
    trainer = make_trainer("adapter")
    with pytest.raises(SyncError, match="differ from the trainer's"):
        make_synced(trainer, "adapter", engine=BrokenEngine(trainer.base, fault)).publish(0)


@pytest.mark.parametrize("count", [0, 34])
def test_s63_a_count_of_bound_layers_is_believed_before_the_probes(
    make_trainer: Callable[..., Trainer], make_synced: Callable[..., SyncedEngine], count: int
) -> None:
    class Counting(LoadedEngine):
        def load_adapter(self, directory: Path, version: int) -> LoadReport:
            super().load_adapter(directory, version)
            return LoadReport(bound_modules=count)

    engine = Counting("llasa", precision="fp32", temperature=1.0, batch_size=16)
    with pytest.raises(SyncError, match=rf"bound the adapter to {count} of 35 layers"):
        make_synced(make_trainer("adapter"), "adapter", engine=engine).publish(0)


def test_s68_an_adapter_that_the_engine_refuses_stops_the_run_before_training_and_names_the_way_out(
    make_trainer: Callable[..., Trainer], make_synced: Callable[..., SyncedEngine]
) -> None:
    class Refusing(LoadedEngine):
        def load_adapter(self, directory: Path, version: int) -> LoadReport:
            raise EngineError("unsupported target module o_proj")

    engine = Refusing("llasa", precision="fp32", temperature=1.0, batch_size=16)
    synced = make_synced(make_trainer("adapter"), "adapter", engine=engine, max_retries=2)
    with pytest.raises(SyncError, match=r"after 3 attempts .*o_proj; .* use rollout\.sync\.strategy = 'delta'"):
        synced.publish(0)


def test_a_wrong_fingerprint_is_an_error_though_the_probes_agree(
    make_trainer: Callable[..., Trainer], make_synced: Callable[..., SyncedEngine]
) -> None:
    class Confused(LoadedEngine):
        def load_weights(self, directory: Path, version: int) -> LoadReport:
            super().load_weights(directory, version)
            return LoadReport(fingerprint="0" * 64)

    engine = Confused("llasa", precision="fp32", temperature=1.0, batch_size=16)
    with pytest.raises(SyncError, match="have fingerprint 000000000000…, those written"):
        make_synced(make_trainer(), engine=engine).publish(0)


def test_an_engine_that_dies_half_way_is_restarted_and_loaded_again(
    make_trainer: Callable[..., Trainer],
    make_synced: Callable[..., SyncedEngine],
    caplog: pytest.LogCaptureFixture,
) -> None:
    trainer = make_trainer()
    engine = BrokenEngine(trainer.base, "crashes half way", since=2)
    restarts = []

    def restart() -> None:
        restarts.append(engine.loads)
        engine.since = 100

    synced = make_synced(trainer, engine=engine, max_retries=2, restart=restart)
    synced.publish(0)
    trainer.step()
    with caplog.at_level(logging.WARNING):
        synced.publish(1)
    assert restarts == [3]
    assert "version 1 is not proven, loading it again: the server died" in caplog.text
    assert synced.metrics()["sync/retries"] == 1
    assert synced.generate(requests(trainer))[0][0].policy_version == 1


def test_an_engine_that_never_loads_stays_in_quarantine_until_a_sync_succeeds(
    make_trainer: Callable[..., Trainer], make_synced: Callable[..., SyncedEngine], tmp_path: Path
) -> None:
    trainer = make_trainer()
    engine = BrokenEngine(trainer.base, "crashes half way", since=2)
    synced = make_synced(trainer, engine=engine, max_retries=1)
    synced.publish(0)
    proven = synced.status.directory
    trainer.step()
    with pytest.raises(
        SyncError, match=rf"after 2 attempts .*v000001, .*the last proven is version 0 of .* in {proven}.*server died"
    ):
        synced.publish(1)
    assert engine.loads == 4
    last = VersionStore(tmp_path / "sync").last_proven()
    assert last is not None
    assert last.path == proven
    with pytest.raises(SyncError, match="quarantine"):
        synced.generate(requests(trainer))
    engine.since = 100
    synced.publish(1)
    assert synced.generate(requests(trainer))[0][0].policy_version == 1
    assert [path.name for path in (tmp_path / "sync").glob("v*")] == ["v000001.1"]


def test_a_second_run_keeps_the_proven_version_until_it_has_one_of_its_own(
    make_trainer: Callable[..., Trainer], make_synced: Callable[..., SyncedEngine], tmp_path: Path
) -> None:
    trainer = make_trainer()
    make_synced(trainer).publish(6)
    proven = tmp_path / "sync" / "v000006"
    broken = BrokenEngine(trainer.base, "no op", since=1)  # the rehearsal succeeds, the first version does not
    with pytest.raises(SyncError, match=r"have version 7 .*no version was proven before"):
        make_synced(trainer, engine=broken).publish(7)
    last = VersionStore(tmp_path / "sync").last_proven()
    assert last is not None
    assert last.path == proven
    make_synced(trainer).publish(7)
    assert not proven.exists()


def test_a_folder_that_cannot_be_written_leaves_the_engine_as_it_was(
    make_trainer: Callable[..., Trainer], make_synced: Callable[..., SyncedEngine], tmp_path: Path
) -> None:
    trainer = make_trainer()
    synced = make_synced(trainer)
    synced.publish(0)
    shutil.rmtree(tmp_path / "sync")
    trainer.step()
    with pytest.raises(StorageError, match="v000001"):
        synced.publish(1)
    assert not synced.status.is_quarantined
    assert synced.generate(requests(trainer))[0][0].policy_version == 0


def test_s52_an_engine_without_finite_values_is_an_error(
    make_trainer: Callable[..., Trainer], make_synced: Callable[..., SyncedEngine]
) -> None:
    trainer = make_trainer()
    with pytest.raises(SyncError, match="not finite"):
        make_synced(trainer, engine=BrokenEngine(trainer.base, "not finite")).publish(0)


@pytest.mark.parametrize("strategy", ["delta", "full"])
def test_the_rehearsal_leaves_the_trainers_weights_as_they_were_to_the_bit(
    make_trainer: Callable[..., Trainer], make_synced: Callable[..., SyncedEngine], strategy: Strategy
) -> None:
    for fault in (None, "no op"):
        trainer = make_trainer(strategy)
        trainer.step()
        before = {name: tensor.clone() for name, tensor in trainer.policy.model.state_dict().items()}
        synced = make_synced(trainer, strategy, engine=fault and BrokenEngine(trainer.base, fault))
        if fault:
            with pytest.raises(SyncError):
                synced.publish(0)
        else:
            synced.publish(0)
        after = trainer.policy.model.state_dict()
        assert all(torch.equal(tensor, after[name]) for name, tensor in before.items())


def test_nothing_is_drawn_before_the_first_publish(
    make_trainer: Callable[..., Trainer], make_synced: Callable[..., SyncedEngine]
) -> None:
    trainer = make_trainer()
    with pytest.raises(SyncError, match="no weights have been published"):
        make_synced(trainer).generate(requests(trainer))


def test_s64_a_completion_of_another_version_is_refused(
    make_trainer: Callable[..., Trainer], make_synced: Callable[..., SyncedEngine]
) -> None:
    trainer = make_trainer()
    engine = loaded_engine()
    synced = make_synced(trainer, engine=engine)
    synced.publish(3)
    directory = synced.status.directory
    assert directory is not None
    engine.load_weights(directory, 4)  # somebody else speaks to the engine too
    with pytest.raises(SyncError, match=r"bears the version 4, the engine was proven to have 3"):
        synced.generate(requests(trainer))


def test_s71_the_status_says_which_weights_the_engine_has(
    make_trainer: Callable[..., Trainer], make_synced: Callable[..., SyncedEngine], tmp_path: Path
) -> None:
    synced = make_synced(make_trainer())
    assert synced.status.policy_version is None
    synced.publish(2)
    status = synced.status
    last = VersionStore(tmp_path / "sync").last_proven()
    assert last is not None
    assert (status.policy_version, status.directory) == (2, tmp_path / "sync" / "v000002")
    assert status.fingerprint == last.manifest.fingerprint
    assert status.synced_at is not None
    assert status.synced_at.endswith("+00:00")


class Greedy:
    """A proof that knows nothing but greedy ids."""

    @staticmethod
    def of(trainer: Trainer, engine: Any) -> GreedyProof:
        return GreedyProof(trainer.policy, engine, trainer.probes, max_difference=1e-3)


def test_an_engine_that_cannot_score_is_proven_by_its_greedy_ids(
    make_trainer: Callable[..., Trainer], make_synced: Callable[..., SyncedEngine]
) -> None:
    trainer = make_trainer()
    engine = loaded_engine()
    synced = make_synced(trainer, engine=engine, proof=Greedy.of(trainer, engine))
    for version in range(2):
        synced.publish(version)
        assert synced.metrics()["sync/greedy_gap_max_nats"] < 1e-4
        assert synced.metrics()["sync/greedy_prefix_share"] == 1
        trainer.step()


@pytest.mark.parametrize("fault", FAULTS)
def test_s62_s64_greedy_ids_give_a_broken_engine_away_at_the_first_sync(
    make_trainer: Callable[..., Trainer], make_synced: Callable[..., SyncedEngine], fault: str
) -> None:
    trainer = make_trainer()
    engine = BrokenEngine(trainer.base, fault)
    with pytest.raises(SyncError, match="less probable to the trainer than the best"):
        make_synced(trainer, engine=engine, proof=Greedy.of(trainer, engine)).publish(0)


def test_values_of_other_shapes_are_an_error(
    make_trainer: Callable[..., Trainer], make_synced: Callable[..., SyncedEngine]
) -> None:
    trainer = make_trainer()
    engine = loaded_engine()

    class Short:
        def score(self, probes: Any) -> Any:
            return [values[:-1] for values in engine.score(probes)]

    proof = LogprobProof(trainer.policy, Short(), trainer.probes, max_difference=1e-3)
    with pytest.raises(SyncError, match="scored probes of shapes"):
        make_synced(trainer, engine=engine, proof=proof).publish(0)
