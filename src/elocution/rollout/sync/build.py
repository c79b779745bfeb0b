"""Settings -> a synced engine, for engines that load folders and answer probes."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol

from torch import nn

from elocution.assets import resolve_path
from elocution.config.tree import SyncSettings
from elocution.policies.base import Policy
from elocution.policies.lora import describe_base
from elocution.rollout.canary import Canary
from elocution.rollout.sync.base import (
    AdapterLoader,
    Drawer,
    GreedyDecoder,
    Loader,
    LoadReport,
    ProbeScorer,
    TensorLoader,
    WeightLoader,
)
from elocution.rollout.sync.engine import SyncedEngine
from elocution.rollout.sync.payloads import AdapterPayload, Payload, SentPayload, WeightsPayload
from elocution.rollout.sync.probes import draw_probes
from elocution.rollout.sync.proof import GreedyProof, LogprobProof, Proof, default_bound
from elocution.rollout.sync.store import VersionStore
from elocution.types import Utterance

__all__ = ["SyncableEngine", "build_synced_engine"]


def _send(receiver: TensorLoader, payload: SentPayload, directory: Path, version: int) -> LoadReport | None:
    return receiver.load_tensors(payload.buckets, version)


class SyncableEngine(Drawer, WeightLoader, AdapterLoader, ProbeScorer, Protocol):
    """An engine that does all that a sync may ask; `load_adapter` raises EngineError if it takes none."""


def build_synced_engine(
    engine: SyncableEngine,
    policy: Policy,
    settings: SyncSettings,
    *,
    base: str,
    precision: str,
    trained: Mapping[str, nn.Parameter],
    utterances: Sequence[Utterance],
    root: Path,
    seed: int,
    untie: bool = False,
    decoder: GreedyDecoder | None = None,
    receiver: TensorLoader | None = None,
    restart: Callable[[], None] | None = None,
) -> SyncedEngine:
    """An engine whose `publish` brings the weights of `policy`, which was loaded from `base`, to `engine`.

    `precision` is that of the engine's matrix products; `root` is the folder of versions, which the engine must see under
    the same path; probes are made of `utterances`; `untie` is as in `WeightsPayload`, the rest as in `SyncedEngine`. An engine
    that cannot score is proven by the greedy ids of `decoder`, which is the same engine; so is `receiver`, if it can be sent
    tensors.

    Raises: ConfigError, CheckpointError, StorageError before anything is sent.
    """
    store = VersionStore(root)
    payload: Payload
    load: Loader
    if settings.strategy == "adapter":
        payload, load = AdapterPayload(policy.model, describe_base(base)), engine.load_adapter
    elif settings.strategy == "collective":
        assert receiver is not None  # the config's own checks
        assert settings.dtype != "base"
        sent = SentPayload(policy.model, dtype=settings.dtype)
        payload, load = sent, partial(_send, receiver, sent)
    else:
        payload = WeightsPayload(
            policy.model,
            resolve_path(base),
            strategy=settings.strategy,
            shared=store.root / "shared",
            dtype=settings.dtype,
            untie=untie,
        )
        load = engine.load_weights
    written = "fp32" if settings.strategy == "adapter" or settings.dtype == "fp32" else "bf16"
    probes = draw_probes(policy, utterances, count=settings.probes, length=settings.probe_codes, seed=seed)
    bound = settings.max_logprob_difference or default_bound(precision, written)
    proof: Proof = (
        LogprobProof(policy, engine, probes, max_difference=bound)
        if decoder is None
        else GreedyProof(policy, decoder, probes, max_difference=bound)
    )
    return SyncedEngine(
        engine,
        load,
        payload,
        proof,
        store,
        trained=trained,
        seed=seed,
        max_retries=settings.max_retries,
        restart=restart,
        canary=Canary(
            policy, utterances, count=settings.probes, length=settings.probe_codes, seed=seed, temperature=1.0
        ),
    )
