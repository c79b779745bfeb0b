import re
from pathlib import Path

import numpy as np
import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file
from transformers import Qwen3Model

from elocution.config.tree import LoraSettings
from elocution.errors import ConfigError
from elocution.policies import load_policy
from elocution.policies.lora import (
    AdapterBase,
    add_adapter,
    describe_base,
    load_adapter,
    merged_state_dict,
    save_adapter,
)
from elocution.policies.moss import MossPolicy
from elocution.rollout.base import RolloutRequest
from elocution.rollout.torch_engine import TorchEngine
from elocution.testing.policies import small_moss
from elocution.types import Completion, Utterance

KINDS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
SETTINGS = LoraSettings(rank=8, alpha=16)
UTTERANCE = Utterance("u", "mary painted the house")


def adapted(seed: int = 0) -> MossPolicy:
    """A policy whose adapter does something."""
    policy = small_moss()
    add_adapter(policy.model, SETTINGS, targets=policy.lora_targets, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in policy.model.named_parameters():
            if ".lora_B." in name:
                parameter.copy_(0.05 * torch.randn(parameter.shape, generator=generator))
    return policy


def draw(policy: MossPolicy) -> list[Completion]:
    engine = TorchEngine(policy, temperature=1.0, batch_size=8)
    engine.publish(0)
    return engine.generate([RolloutRequest(policy.prompt_ids(UTTERANCE), tuple((i,) for i in range(8)), 40)])[0]


def test_the_adapter_has_the_published_names_and_the_seven_kinds(tmp_path: Path) -> None:
    save_adapter(adapted().model, str(tmp_path), base=AdapterBase("base", "0"))
    names = set(load_file(tmp_path / "adapter_model.safetensors"))
    pattern = re.compile(r"base_model\.model\.layers\.\d+\.(self_attn|mlp)\.(\w+)\.lora_[AB]\.weight")
    matches = [pattern.fullmatch(name) for name in names]
    assert all(matches)
    assert len(names) == 2 * 2 * len(KINDS)
    assert {match[2] for match in matches if match} == set(KINDS)
    assert all(t.dtype is torch.float32 for t in load_file(tmp_path / "adapter_model.safetensors").values())


def test_the_published_size_follows_from_the_released_shapes() -> None:
    """Rank 8 on VoiceGenerator's backbone: 8 716 288 parameters."""
    width, mlp, kv = 2048, 6144, 1024
    shapes = [(width, width), (width, kv), (width, kv), (width, width), (width, mlp), (width, mlp), (mlp, width)]
    assert 28 * sum(8 * (a + b) for a, b in shapes) == 8_716_288


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing.*:FutureWarning")  # peft asks by the old name
def test_peft_reads_the_adapter_on_the_backbone_alone(tmp_path: Path) -> None:
    """The loading that was published with such adapters."""
    policy = adapted()
    save_adapter(policy.model, str(tmp_path), base=AdapterBase("base", "0"))
    plain = small_moss()
    wrapped = PeftModel.from_pretrained(plain.moss.language_model, str(tmp_path))
    ids = torch.from_numpy(policy.prompt_ids(UTTERANCE))[None]
    wanted = policy.moss.language_model(inputs_embeds=policy.moss.embed(ids)).last_hidden_state
    found = wrapped(inputs_embeds=plain.moss.embed(ids)).last_hidden_state
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-5)
    assert (
        wanted - small_moss().moss.language_model(inputs_embeds=plain.moss.embed(ids)).last_hidden_state
    ).abs().max() > 0.01


def test_class_and_forward_stay_what_they_were() -> None:
    policy = adapted()
    assert type(policy.moss.language_model) is Qwen3Model
    assert not any("lora" in name for name in [*policy.moss.emb_ext.state_dict(), *policy.moss.lm_heads.state_dict()])


def test_s74_generation_with_the_adapter_is_generation_with_it_merged(tmp_path: Path) -> None:
    policy = adapted()
    policy.save_pretrained(str(tmp_path))
    merged = MossPolicy.from_pretrained(tmp_path)
    assert merged.model.state_dict().keys() == small_moss().model.state_dict().keys()
    for one, other in zip(draw(policy), draw(merged), strict=True):
        assert (one.ids == other.ids).all()
    bases = draw(small_moss())
    assert any(not np.array_equal(one.ids, other.ids) for one, other in zip(draw(policy), bases, strict=True))


def test_s66_merged_logits_are_those_with_the_adapter_and_not_the_bases(tmp_path: Path) -> None:
    policy, base = adapted(), small_moss()
    policy.save_pretrained(str(tmp_path))
    merged = MossPolicy.from_pretrained(tmp_path)
    ids = torch.from_numpy(policy.prompt_ids(UTTERANCE))[None]
    for own, other, plain in zip(policy.moss(ids), merged.moss(ids), base.moss(ids), strict=True):
        finite = torch.isfinite(own)
        torch.testing.assert_close(other[finite], own[finite], rtol=1e-5, atol=1e-4)
        assert (own[finite] - plain[finite]).abs().max() > 0.1


def test_a_merge_is_rounded_once_from_the_base() -> None:
    policy = adapted()
    name = "language_model.layers.0.self_attn.q_proj"
    base = small_moss().model.state_dict()[f"{name}.weight"]
    a, b = (policy.model.state_dict()[f"{name}.lora_{half}.default.weight"] for half in "AB")
    torch.testing.assert_close(
        merged_state_dict(policy.model)[f"{name}.weight"], base + 2.0 * (b @ a), rtol=0, atol=1e-6
    )


def test_an_adapter_is_loaded_beside_its_base(tmp_path: Path) -> None:
    base, adapter = tmp_path / "base", tmp_path / "adapter"
    small_moss().save_pretrained(str(base))
    trained = adapted()
    save_adapter(trained.model, str(adapter), base=describe_base(str(base)))
    loaded = load_policy("moss", adapter)
    for one, other in zip(draw(trained), draw(loaded), strict=True):  # type: ignore[arg-type]
        assert (one.ids == other.ids).all()


def test_s63_an_adapter_of_the_whole_model_does_not_bind(tmp_path: Path) -> None:
    save_adapter(adapted().model, str(tmp_path), base=AdapterBase("base", "0"))
    path = tmp_path / "adapter_model.safetensors"
    save_file(
        {name.replace("model.layers", "model.language_model.layers"): t for name, t in load_file(path).items()}, path
    )
    with pytest.raises(Exception, match="does not fit the model"):
        load_adapter(small_moss().model, tmp_path)


@pytest.mark.parametrize("pattern", ["lm_heads.*", "emb_ext.*", "embed_tokens", "lm_heads.0"])
def test_s68_heads_and_tables_take_no_adapter(pattern: str) -> None:
    policy = small_moss()
    with pytest.raises(ConfigError, match="fits no layer"):
        add_adapter(policy.model, LoraSettings(rank=8, target_modules=(pattern,)), targets=policy.lora_targets, seed=0)
