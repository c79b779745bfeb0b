"""Sampling from a copy of older weights while the policy moves on."""

from pathlib import Path

import numpy as np
import pytest
import torch

from elocution.config.tree import LoraSettings
from elocution.errors import CheckpointError
from elocution.policies.llasa import LlasaPolicy
from elocution.policies.lora import add_adapter
from elocution.rollout.base import RolloutRequest
from elocution.rollout.torch_engine import TorchEngine
from elocution.testing.policies import small_llasa
from elocution.train.mirror import Snapshot, capture, load_snapshot, mirror_of, read_snapshots, write_snapshots
from elocution.types import Completion, Utterance


def policy_of(kind: str) -> LlasaPolicy:
    policy = small_llasa(seed=3)
    if kind == "lora":
        add_adapter(policy.model, LoraSettings(rank=2), targets=policy.lora_targets, seed=0)
        with torch.no_grad():
            for parameter in policy.model.parameters():
                if parameter.requires_grad:
                    parameter.add_(0.05)
    return policy


def move(policy: LlasaPolicy) -> None:
    with torch.no_grad():
        for parameter in policy.model.parameters():
            if parameter.requires_grad:
                parameter.mul_(1.5)


def draw(policy: LlasaPolicy, engine: TorchEngine, version: int) -> list[Completion]:
    request = RolloutRequest(policy.prompt_ids(Utterance("u", "mary painted")), tuple((7, i) for i in range(8)), 20)
    engine.publish(version)
    return engine.generate([request])[0]


def engine_of(policy: LlasaPolicy) -> TorchEngine:
    return TorchEngine(policy, temperature=1.0, batch_size=8)


@pytest.mark.parametrize("kind", ["full", "lora"])
def test_a_mirror_draws_to_the_bit_what_the_policy_drew_when_it_was_captured(kind: str) -> None:
    policy = policy_of(kind)
    mirror = mirror_of(policy)
    assert isinstance(mirror, LlasaPolicy)
    move(policy)
    snapshot = capture(policy.model, 5)
    expected = draw(policy, engine_of(policy), 5)
    move(policy)
    load_snapshot(mirror.model, snapshot)
    found = draw(mirror, engine_of(mirror), snapshot.version)
    moved = draw(policy, engine_of(policy), 6)
    for one, other in zip(found, expected, strict=True):
        assert np.array_equal(one.ids, other.ids)
        assert np.array_equal(one.rollout_logprobs, other.rollout_logprobs)
        assert one.policy_version == other.policy_version == 5
    assert any(
        not np.array_equal(one.rollout_logprobs, other.rollout_logprobs)
        for one, other in zip(found, moved, strict=True)
    )


def test_a_mirror_shares_what_is_not_trained_and_holds_its_own_of_what_is() -> None:
    policy = policy_of("lora")
    mirror = mirror_of(policy)
    pairs = list(zip(policy.model.parameters(), mirror.model.parameters(), strict=True))
    assert all((one is other) is not one.requires_grad for one, other in pairs)
    assert any(one.requires_grad for one, _ in pairs)
    assert not any(other.requires_grad for _, other in pairs)
    assert all(name.split(".")[-3] in {"lora_A", "lora_B"} for name in capture(policy.model, 0).tensors)


def test_s76_snapshots_survive_the_disk_to_the_bit(tmp_path: Path) -> None:
    policy = policy_of("full")
    snapshots = {4: capture(policy.model, 9)}
    move(policy)
    snapshots[12] = capture(policy.model, 25)
    write_snapshots(tmp_path / "sampling", snapshots)
    found = read_snapshots(tmp_path / "sampling")
    assert found.keys() == {4, 12}
    for step, snapshot in snapshots.items():
        assert found[step].version == snapshot.version
        assert found[step].tensors.keys() == snapshot.tensors.keys()
        assert all(torch.equal(found[step].tensors[name], tensor) for name, tensor in snapshot.tensors.items())
    assert read_snapshots(tmp_path / "absent") == {}


def test_a_damaged_snapshot_is_named(tmp_path: Path) -> None:
    write_snapshots(tmp_path / "sampling", {1: Snapshot(1, {"weight": torch.ones(100)})})
    path = tmp_path / "sampling" / "step_1.safetensors"
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(CheckpointError, match=r"step_1\.safetensors"):
        read_snapshots(tmp_path / "sampling")
