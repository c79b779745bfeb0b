from collections.abc import Callable
from pathlib import Path

import pytest
from sync_trainer import UTTERANCES, Strategy, Trainer, loaded_engine

from elocution.config.load import load_config
from elocution.config.tree import SyncSettings
from elocution.errors import ConfigError, SyncError
from elocution.rollout.base import RolloutRequest
from elocution.rollout.sync.build import build_synced_engine
from elocution.rollout.sync.loaded_engine import LoadedEngine


@pytest.mark.parametrize(
    ("strategy", "dtype", "precision"),
    [("full", "fp32", "fp32"), ("delta", "bf16", "bf16"), ("delta", "bf16", "fp32"), ("adapter", "fp32", "fp32")],
)
def test_settings_make_an_engine_that_syncs(
    make_trainer: Callable[..., Trainer], tmp_path: Path, strategy: Strategy, dtype: str, precision: str
) -> None:
    trainer = make_trainer(strategy, precision)
    engine = LoadedEngine("llasa", precision=precision, temperature=0.8, batch_size=16)
    settings = SyncSettings.model_validate({"strategy": strategy, "dtype": dtype, "probes": 3, "probe_codes": 40})
    synced = build_synced_engine(
        engine,
        trainer.policy,
        settings,
        base=str(trainer.base),
        precision=precision,
        trained=trainer.trained,
        utterances=UTTERANCES,
        root=tmp_path,
        seed=3,
    )
    for version in (0, 1):
        synced.publish(version)
        assert synced.metrics()["sync/is_told"] == 1
        assert synced.temperature == 0.8
        trainer.step(size=0.002)
    bound = 1e-4 if (dtype, precision) == ("fp32", "fp32") else 0.25
    assert synced.metrics()["sync/probe_difference_max_nats"] < bound
    synced.temperature = 0.5
    request = RolloutRequest(trainer.policy.prompt_ids(UTTERANCES[0]), ((1,),), 10)
    assert synced.generate([request])[0][0].policy_version == 1
    assert engine.temperature == 0.5


def test_a_bound_that_is_given_is_taken(make_trainer: Callable[..., Trainer], tmp_path: Path) -> None:
    trainer = make_trainer()
    synced = build_synced_engine(
        loaded_engine(),
        trainer.policy,
        SyncSettings(strategy="delta", dtype="bf16", max_logprob_difference=1e-3, max_retries=0),
        base=str(trainer.base),
        precision="fp32",
        trained=trainer.trained,
        utterances=UTTERANCES,
        root=tmp_path,
        seed=3,
    )
    with pytest.raises(SyncError, match=r"bounds: 0\.001 and 0\.0001"):
        synced.publish(0)


def test_strategies_for_adapters_need_one() -> None:
    with pytest.raises(ConfigError, match=r"rollout\.sync\.strategy = 'delta' needs an adapter"):
        load_config(None, ["rollout.sync.strategy=delta"])
    chosen = load_config(None, ["rollout.sync.strategy=adapter", "model.lora.rank=4", "train.rules=[]"])
    assert chosen.rollout.sync.strategy == "adapter"
