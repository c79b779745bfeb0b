from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from sync_trainer import Trainer
from torch import nn

from elocution.assets import resolve_path
from elocution.errors import ConfigError, EngineError
from elocution.policies import lora
from elocution.policies.llasa import LlasaPolicy
from elocution.policies.lora import adapted_weights, merged_state_dict
from elocution.rollout.sync.payloads import SentPayload
from elocution.rollout.sync.store import VersionStore


def sent(payload: SentPayload) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = {}
    for bucket in payload.buckets():
        assert not found.keys() & bucket.keys()
        found |= bucket
    return found


def test_what_an_adapter_changes_is_merged_once_sent_in_parts_and_the_record_of_the_adapter_alone_is_written(
    make_trainer: Callable[..., Trainer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = make_trainer()
    payload = SentPayload(trainer.policy.model, max_bucket_bytes=50_000)
    trainer.step()
    merged: list[nn.Module] = []
    merge = lora.merged_weight
    monkeypatch.setattr(lora, "merged_weight", lambda layer: [merge(layer), merged.append(layer)][0])
    written = VersionStore(tmp_path).write(4, payload.write)
    assert sorted(path.name for path in written.path.iterdir()) == ["sync.json"]
    assert merged == []
    found = sent(payload)
    assert len(merged) == len(set(merged)) == len(adapted_weights(trainer.policy.model))
    assert len(list(payload.buckets())) > 2
    expected = merged_state_dict(trainer.policy.model, adapted_weights(trainer.policy.model))
    assert found.keys() == expected.keys()
    assert written.manifest.tensors.keys() == lora.adapter_tensors(trainer.policy.model).keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert all(tensor.is_contiguous() for tensor in found.values())


def test_two_versions_have_two_fingerprints(make_trainer: Callable[..., Trainer], tmp_path: Path) -> None:
    trainer, store = make_trainer(), VersionStore(tmp_path)
    payload = SentPayload(trainer.policy.model)
    fingerprints = {store.write(version, payload.write).manifest.fingerprint for version in (0, 0)}
    trainer.step()
    fingerprints.add(store.write(1, payload.write).manifest.fingerprint)
    assert len(fingerprints) == 2


def test_tied_tensors_are_sent_once_and_rounded_as_asked(tmp_path: Path) -> None:
    policy = LlasaPolicy.from_pretrained(resolve_path("builtin:tiny-llasa"))
    payload = SentPayload(policy.model, dtype="bf16")
    payload.write(tmp_path, 0)
    found = sent(payload)
    state = policy.model.state_dict()
    assert policy.llama.config.tie_word_embeddings
    assert state.keys() - found.keys() == {"lm_head.weight"}
    assert all(torch.equal(tensor, state[name].bfloat16()) for name, tensor in found.items())


def test_s64_weights_that_have_changed_since_they_were_described_are_not_sent(
    make_trainer: Callable[..., Trainer], tmp_path: Path
) -> None:
    trainer = make_trainer()
    payload = SentPayload(trainer.policy.model)
    payload.write(tmp_path, 0)
    trainer.step()
    with pytest.raises(EngineError, match="have changed since they were published"):
        next(payload.buckets())


def test_weights_that_are_held_in_bf16_are_refused(make_trainer: Callable[..., Trainer]) -> None:
    model = make_trainer().policy.model.to(torch.bfloat16)
    with pytest.raises(ConfigError, match=r"must be held in fp32, the model has torch\.bfloat16"):
        SentPayload(model)
