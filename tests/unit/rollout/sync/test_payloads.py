import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from sync_trainer import Trainer, loaded_engine
from torch import Tensor

from elocution.errors import CheckpointError, ConfigError
from elocution.policies import load_policy
from elocution.policies.llasa import LlasaPolicy
from elocution.policies.lora import LoraSettings, adapted_weights, adapter_parameters, add_adapter, describe_base
from elocution.rollout.sync.layout import read_base_checkpoint
from elocution.rollout.sync.manifest import read_manifest
from elocution.rollout.sync.payloads import AdapterPayload, WeightsPayload
from elocution.rollout.sync.store import VersionStore
from elocution.testing.policies import small_llasa

IDS = torch.arange(40)[None]


def tensors_of(folder: Path) -> dict[str, Tensor]:
    """Every tensor of a checkpoint, each in one file only."""
    found: dict[str, Tensor] = {}
    for file in folder.glob("*.safetensors"):
        tensors = load_file(file)
        assert not found.keys() & tensors.keys()
        found |= tensors
    return found


def changes_of(trainer: Trainer) -> dict[str, Tensor]:
    """(alpha / rank) B A of each adapted weight, from the adapter's own tensors; alpha is 32, the rank 4."""
    parameters = {name: parameter.detach() for name, parameter in trainer.trained.items()}
    return {
        name: 8 * (parameters[f"{layer}.lora_B.default.weight"] @ parameters[f"{layer}.lora_A.default.weight"])
        for name in adapted_weights(trainer.policy.model)
        for layer in [name.removesuffix(".weight")]
    }


def delta(trainer: Trainer, root: Path, **options: object) -> WeightsPayload:
    chosen: dict[str, object] = {"strategy": "delta", "shared": root / "shared", "max_shard_bytes": 100_000}
    return WeightsPayload(trainer.policy.model, trainer.base, **(chosen | options))  # type: ignore[arg-type]


def write(payload: WeightsPayload | AdapterPayload, root: Path, version: int) -> Path:
    return VersionStore(root).write(version, payload.write, read_before=payload.read_before).path


@pytest.mark.parametrize("dtype", ["fp32", "bf16", "base"])
def test_each_version_is_the_base_plus_its_own_adapter_rounded_once(
    make_trainer: Callable[..., Trainer], tmp_path: Path, dtype: str
) -> None:
    trainer = make_trainer()
    base = tensors_of(trainer.base)
    payload = delta(trainer, tmp_path, dtype=dtype)
    rounding = torch.bfloat16 if dtype == "bf16" else torch.float32
    for version in (1, 2):
        trainer.step(size=0.05, seed=version)
        found = tensors_of(write(payload, tmp_path, version))
        assert found.keys() == base.keys()
        changes = changes_of(trainer)
        assert len(changes) == 35
        for name, tensor in found.items():
            expected = (base[name] + changes[name]).to(rounding) if name in changes else base[name]
            assert torch.equal(tensor, expected), name


def test_bf16_is_rounded_from_fp32_and_not_from_a_rounded_base(
    make_trainer: Callable[..., Trainer], tmp_path: Path
) -> None:
    trainer = make_trainer()
    trainer.step(size=0.001)
    base, changes = tensors_of(trainer.base), changes_of(trainer)
    found = tensors_of(write(delta(trainer, tmp_path, dtype="bf16"), tmp_path, 1))
    twice = {name: base[name].bfloat16() + change.bfloat16() for name, change in changes.items()}
    assert any(not torch.equal(found[name], twice[name]) for name in changes), "or the test shows nothing"
    for name, change in changes.items():
        assert torch.equal(found[name], (base[name] + change).bfloat16())


def test_a_delta_writes_what_the_adapter_changes_and_links_the_rest(
    make_trainer: Callable[..., Trainer], tmp_path: Path
) -> None:
    trainer = make_trainer()
    payload = delta(trainer, tmp_path)
    first, second = (write(payload, tmp_path, version) for version in (1, 2))
    changed = set(adapted_weights(trainer.policy.model))
    weight_map = json.loads((first / "model.safetensors.index.json").read_text())["weight_map"]
    own = {file.name for file in first.glob("*.safetensors") if not file.samefile(second / file.name)}
    assert len(own) > 1
    for name, file in weight_map.items():
        assert (file in own) == (name in changed), name
    assert (first / "tokenizer.json").samefile(trainer.base / "tokenizer.json")
    sizes = {name: 4 * tensor.numel() for name, tensor in tensors_of(first).items()}
    written = sum(sizes[name] for name in changed)
    assert written < sum((first / file).stat().st_size for file in own) < written + 20_000  # headers


def test_files_of_the_base_without_a_changed_weight_are_linked_themselves(tmp_path: Path) -> None:
    """The layout that is meant for deltas: what the adapter changes in files of its own."""
    policy = small_llasa(seed=1)
    base = tmp_path / "base"
    policy.llama.save_pretrained(base)
    policy.tokenizer.save_pretrained(base)
    tensors = load_file(base / "model.safetensors")
    (base / "model.safetensors").unlink()
    parts = [
        ("heads.safetensors", {n: t for n, t in tensors.items() if ".layers." not in n}),
        ("layers.safetensors", {n: t for n, t in tensors.items() if "_proj." in n}),
        ("norms.safetensors", {n: t for n, t in tensors.items() if ".layers." in n and "_proj." not in n}),
    ]
    for file, part in parts:
        save_file(part, base / file)
    index = {"metadata": {}, "weight_map": {name: file for file, part in parts for name in part}}
    (base / "model.safetensors.index.json").write_text(json.dumps(index))
    trained = load_policy("llasa", base)
    assert isinstance(trained, LlasaPolicy)
    add_adapter(trained.model, LoraSettings(rank=4), targets=trained.lora_targets, seed=1)
    trainer = Trainer(trained, adapter_parameters(trained.model), base, ())
    folder = write(delta(trainer, tmp_path / "sync", max_shard_bytes=1 << 30), tmp_path / "sync", 3)
    places = {file.name: file for file in folder.glob("*.safetensors")}
    assert sorted(places) == [f"model-{number:05d}-of-00003.safetensors" for number in (1, 2, 3)]
    linked = [
        name for file in ("heads", "norms") for name in places if places[name].samefile(base / f"{file}.safetensors")
    ]
    assert len(linked) == 2
    assert not (tmp_path / "sync" / "shared").exists()


def test_s66_merged_weights_compute_what_the_adapter_does_and_not_what_the_base_does(
    make_trainer: Callable[..., Trainer], tmp_path: Path
) -> None:
    trainer = make_trainer()
    trainer.step(size=0.01)
    merged = load_policy("llasa", write(delta(trainer, tmp_path), tmp_path, 1))
    base = load_policy("llasa", trainer.base)
    with torch.no_grad():
        logits = [policy.model(input_ids=IDS).logits for policy in (trainer.policy, merged, base)]
    assert (logits[1] - logits[0]).abs().max() < 1e-4
    assert (logits[1] - logits[2]).abs().max() > 0.1


def test_a_full_version_holds_every_trained_tensor_and_no_shard_above_the_bound(
    make_trainer: Callable[..., Trainer], tmp_path: Path
) -> None:
    trainer = make_trainer("full")
    trainer.step(size=0.01)
    folder = write(delta(trainer, tmp_path, strategy="full"), tmp_path, 1)
    found = tensors_of(folder)
    state = trainer.policy.model.state_dict()
    assert found.keys() == tensors_of(trainer.base).keys()
    assert all(torch.equal(tensor, state[name]) for name, tensor in found.items())
    assert len(list(folder.glob("*.safetensors"))) == 5
    assert all(file.stat().st_size < 110_000 for file in folder.glob("*.safetensors"))


def test_a_full_version_of_an_adapted_policy_is_merged(make_trainer: Callable[..., Trainer], tmp_path: Path) -> None:
    trainer = make_trainer()
    trainer.step(size=0.01)
    full = tensors_of(write(delta(trainer, tmp_path / "a", strategy="full"), tmp_path / "a", 1))
    merged = tensors_of(write(delta(trainer, tmp_path / "b"), tmp_path / "b", 1))
    assert full.keys() == merged.keys()
    assert all(torch.equal(full[name], merged[name]) for name in full)


@pytest.mark.parametrize("strategy", ["full", "delta"])
def test_tied_tensors_are_there_under_both_names_where_an_engine_needs_them(
    make_trainer: Callable[..., Trainer], tmp_path: Path, strategy: str
) -> None:
    trainer = make_trainer("full" if strategy == "full" else "delta")
    trainer.step(size=0.01)
    found = tensors_of(write(delta(trainer, tmp_path, strategy=strategy, untie=True), tmp_path, 1))
    assert "lm_head.weight" not in tensors_of(trainer.base)
    assert torch.equal(found["lm_head.weight"], found["model.embed_tokens.weight"])
    expected = trainer.policy.model.state_dict()["lm_head.weight"]
    assert torch.equal(found["lm_head.weight"], expected)


def test_an_adapter_version_is_peft_alone(make_trainer: Callable[..., Trainer], tmp_path: Path) -> None:
    trainer = make_trainer()
    trainer.step()
    payload = AdapterPayload(trainer.policy.model, describe_base(str(trainer.base)))
    folder = write(payload, tmp_path, 4)
    assert {path.name for path in folder.iterdir()} == {
        "adapter_config.json",
        "adapter_model.safetensors",
        "base.json",
        "sync.json",
    }
    engine = loaded_engine()
    report = engine.load_adapter(folder, 4)
    assert report.bound_modules == payload.adapted_modules == 35
    assert report.fingerprint == read_manifest(folder).fingerprint
    trainer.step(seed=8)
    assert report.fingerprint != read_manifest(write(payload, tmp_path, 5)).fingerprint


def test_a_policy_that_is_not_of_the_base_is_refused(make_trainer: Callable[..., Trainer], tmp_path: Path) -> None:
    trainer = make_trainer()
    small_llasa().save_pretrained(str(tmp_path / "other"))  # of six layers and other widths
    with pytest.raises(CheckpointError, match="has shape"):
        write(
            WeightsPayload(trainer.policy.model, tmp_path / "other", strategy="full", shared=tmp_path / "x"),
            tmp_path,
            0,
        )
    tensors = load_file(tmp_path / "other" / "model.safetensors")
    renamed = {name.replace("model.layers", "transformer.h"): tensor for name, tensor in tensors.items()}
    save_file(renamed, tmp_path / "other" / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"no tensors called model\.layers\.0.* is it the model's base"):
        WeightsPayload(trainer.policy.model, tmp_path / "other", strategy="delta", shared=tmp_path / "x")


def test_weights_that_are_held_in_bf16_are_refused(make_trainer: Callable[..., Trainer], tmp_path: Path) -> None:
    trainer = make_trainer()
    trainer.policy.model.bfloat16()
    with pytest.raises(ConfigError, match=r"must be held in fp32, the model has torch\.bfloat16"):
        delta(trainer, tmp_path)


@pytest.mark.parametrize("strategy", ["delta", "adapter"])
def test_a_policy_without_an_adapter_needs_the_full_strategy(
    make_trainer: Callable[..., Trainer], tmp_path: Path, strategy: str
) -> None:
    trainer = make_trainer("full")
    make = {
        "delta": lambda: delta(trainer, tmp_path),
        "adapter": lambda: AdapterPayload(trainer.policy.model, describe_base(str(trainer.base))),
    }
    with pytest.raises(ConfigError, match=rf"'{strategy}' needs an adapter"):
        make[strategy]()


@pytest.mark.parametrize("damage", ["none", "truncated", "index"])
def test_a_base_that_cannot_be_read_is_named(base: Path, tmp_path: Path, damage: str) -> None:
    for file in base.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    index = tmp_path / "model.safetensors.index.json"
    shard = min(tmp_path.glob("*.safetensors"))
    if damage == "none":
        index.unlink()
        message = "has neither model.safetensors nor a readable"
    elif damage == "truncated":
        shard.write_bytes(shard.read_bytes()[:-4])
        message = f"cannot read {shard}"
    else:
        content = json.loads(index.read_text())
        moved = next(name for name, file in content["weight_map"].items() if file != shard.name)
        content["weight_map"][moved] = shard.name
        index.write_text(json.dumps(content))
        message = "does not hold the tensors that model.safetensors.index.json says"
    with pytest.raises(CheckpointError, match=message):
        read_base_checkpoint(tmp_path)
