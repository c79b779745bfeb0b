import json
import re
from pathlib import Path

import peft
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from elocution.config.load import load_config
from elocution.errors import CheckpointError, ConfigError, EngineError
from elocution.policies import load_policy
from elocution.policies.base import PolicyBatch
from elocution.policies.llasa import LlasaPolicy
from elocution.policies.lora import (
    BasePolicy,
    LoraSettings,
    adapter_disabled,
    adapter_parameters,
    add_adapter,
    describe_base,
    has_adapter,
    merged_state_dict,
    save_adapter,
)
from elocution.policies.padding import pad_prompts
from elocution.rollout.base import RolloutRequest
from elocution.rollout.torch_engine import TorchEngine
from elocution.testing.policies import small_llasa
from elocution.types import Utterance

IDS = torch.arange(40)[None]
# peft asks a model something that transformers has renamed.
peft_opens = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")


def adapted(
    *, dtype: torch.dtype = torch.float32, random_b: bool = True, settings: LoraSettings | None = None
) -> LlasaPolicy:
    """The small policy with an adapter that, unless B is left at 0, changes its logits by about their own size."""
    policy = small_llasa(dtype=dtype)
    add_adapter(policy.model, settings or LoraSettings(rank=4), targets=policy.lora_targets, seed=1)
    if random_b:
        generator = torch.Generator().manual_seed(2)
        with torch.no_grad():
            for name, parameter in adapter_parameters(policy.model).items():
                if "lora_B" in name:
                    parameter.copy_(0.05 * torch.randn(parameter.shape, generator=generator))
    return policy


def logits_of(policy: LlasaPolicy) -> Tensor:
    with torch.no_grad():
        logits: Tensor = policy.llama(input_ids=IDS).logits
    return logits


def batch_of(policy: LlasaPolicy) -> PolicyBatch:
    ids, mask = pad_prompts([policy.prompt_ids(Utterance("u", text)) for text in ("one", "mary painted the house")])
    generator = torch.Generator().manual_seed(7)
    completion = policy.legal_ids[torch.randint(len(policy.legal_ids), (3, 9, 1), generator=generator)]
    lengths = torch.tensor([9, 4, 6])
    return PolicyBatch(
        ids, mask, torch.tensor([0, 1, 1]), completion, torch.arange(9)[None, :, None] < lengths[:, None, None]
    )


def test_a_new_adapter_changes_nothing_and_alone_is_trained() -> None:
    base, policy = small_llasa(), adapted(random_b=False)
    assert type(policy.model) is type(base.model)
    assert torch.equal(logits_of(policy), logits_of(base))
    batch = batch_of(policy)
    ratio = policy.logprobs(batch, temperature=1.0)[0] - base.logprobs(batch, temperature=1.0)[0]
    assert torch.equal(ratio.exp(), torch.ones_like(ratio))
    trained = {name for name, parameter in policy.model.named_parameters() if parameter.requires_grad}
    assert trained == set(adapter_parameters(policy.model))
    # 6 layers of 7 matrices, each with A and B of 4 rows and columns.
    widths = [(192, 192), (192, 64), (192, 64), (192, 192), (192, 512), (192, 512), (512, 192)]
    assert len(trained) == 6 * 7 * 2
    assert sum(p.numel() for p in adapter_parameters(policy.model).values()) == 6 * 4 * sum(map(sum, widths))


def test_the_first_a_follows_the_seed_and_no_other_draw() -> None:
    def first(seed: int) -> Tensor:
        policy = small_llasa()
        torch.manual_seed(99)
        add_adapter(policy.model, LoraSettings(rank=4), targets=policy.lora_targets, seed=seed)
        return next(iter(adapter_parameters(policy.model).values())).detach()

    torch.manual_seed(99)
    undisturbed = torch.rand(3)
    assert torch.equal(first(1), first(1))
    assert not torch.equal(first(1), first(2))
    assert torch.equal(torch.rand(3), undisturbed)


def test_switched_off_the_model_is_its_base_to_the_bit_and_then_itself_again() -> None:
    base, policy = small_llasa(), adapted()
    before = logits_of(policy)
    assert (before - logits_of(base)).abs().max() > 0.1
    with adapter_disabled(policy.model):
        assert torch.equal(logits_of(policy), logits_of(base))
    assert torch.equal(logits_of(policy), before)
    with pytest.raises(KeyError), adapter_disabled(policy.model):
        raise KeyError
    assert torch.equal(logits_of(policy), before)


def test_the_base_policy_scores_as_the_base_does_and_gradients_pass_it_by() -> None:
    policy = adapted()
    batch = batch_of(policy)
    logprobs, _ = policy.logprobs(batch, temperature=0.8)
    reference, _ = BasePolicy(policy).logprobs(batch, temperature=0.8)
    assert torch.equal(reference, small_llasa().logprobs(batch, temperature=0.8)[0])
    # The order of the learner: score, score by the reference, differentiate.
    logprobs.sum().backward()
    assert all(parameter.grad is not None for parameter in adapter_parameters(policy.model).values())


def test_switching_off_and_on_leaves_frozen_parts_of_the_adapter_frozen() -> None:
    policy = adapted()
    parameters = adapter_parameters(policy.model)
    for name, parameter in parameters.items():
        parameter.requires_grad_("lora_B" in name)
    with adapter_disabled(policy.model):
        pass
    assert all(parameter.requires_grad == ("lora_B" in name) for name, parameter in parameters.items())


def test_gradients_reach_every_a_and_b_and_no_weight_of_the_base() -> None:
    policy = adapted()
    policy.logprobs(batch_of(policy), temperature=1.0)[0].sum().backward()
    adapter = adapter_parameters(policy.model)
    for name, parameter in policy.model.named_parameters():
        if name in adapter:
            assert parameter.grad is not None
            assert parameter.grad.abs().max() > 0, name
        else:
            assert parameter.grad is None, name


def test_merged_weights_have_the_names_of_the_base_and_the_values_worked_out_by_hand() -> None:
    # rank 4 and alpha 6: the adapter counts 1.5 times.
    policy = adapted(dtype=torch.float64, settings=LoraSettings(rank=4, alpha=6.0))
    base = small_llasa(dtype=torch.float64)
    merged = merged_state_dict(policy.model)
    assert merged.keys() == base.model.state_dict().keys()
    adapter = adapter_parameters(policy.model)
    layer = "model.layers.3.mlp.down_proj"
    a, b = (adapter[f"{layer}.lora_{which}.default.weight"] for which in "AB")
    expected = base.model.state_dict()[f"{layer}.weight"] + 1.5 * b @ a
    assert torch.allclose(merged[f"{layer}.weight"], expected, atol=1e-14)
    base.model.load_state_dict(merged)
    assert torch.allclose(logits_of(base), logits_of(policy), atol=1e-5)
    with adapter_disabled(policy.model):
        unmerged = merged_state_dict(policy.model)
    untouched = small_llasa(dtype=torch.float64).model.state_dict()
    assert all(torch.equal(unmerged[name], tensor) for name, tensor in untouched.items())


def test_saving_the_policy_writes_the_released_layout_with_the_adapter_folded_in(tmp_path: Path) -> None:
    policy = adapted()
    policy.save_pretrained(str(tmp_path))
    again = LlasaPolicy.from_pretrained(tmp_path)
    assert not has_adapter(again.model)
    assert torch.allclose(logits_of(again), logits_of(policy), atol=1e-4)
    assert (logits_of(small_llasa()) - logits_of(policy)).abs().max() > 0.1


@pytest.mark.parametrize("targets", [(), ("q_proj",), ("o_proj", "*.mlp.down_proj"), ("*.[kv]_proj", "gate_proj")])
def test_s44_sampling_logprobs_are_the_learners_with_an_adapter(targets: tuple[str, ...]) -> None:
    policy = adapted(settings=LoraSettings(rank=4, target_modules=targets))
    requests = [
        RolloutRequest(policy.prompt_ids(Utterance(text, text)), tuple((index, i) for i in range(5)), 30)
        for index, text in enumerate(("one", "mary painted the house"))
    ]
    engine = TorchEngine(policy, temperature=0.9, batch_size=64)
    engine.publish(0)
    ids, mask = pad_prompts([request.prompt_ids for request in requests])
    worst = 0.0
    for index, group in enumerate(engine.generate(requests)):
        for completion in group:
            drawn = torch.from_numpy(completion.ids)[None]
            batch = PolicyBatch(ids[[index]], mask[[index]], torch.tensor([0]), drawn, torch.ones_like(drawn).bool())
            for scorer, bound in ((policy, 1e-4), (BasePolicy(policy), None)):
                logprobs, _ = scorer.logprobs(batch, temperature=0.9)
                off = torch.expm1(logprobs[0] - torch.from_numpy(completion.rollout_logprobs)).abs().max().item()
                if bound is None:
                    worst = max(worst, off)
                else:
                    assert off < bound
    assert worst > 0.01, "the adapter must matter, or the test shows nothing"


def test_s64_a_changed_adapter_is_refused_until_it_is_published() -> None:
    policy = adapted()
    engine = TorchEngine(policy, temperature=1.0, batch_size=4)
    requests = [RolloutRequest(policy.prompt_ids(Utterance("u", "one")), ((1, 1),), 5)]
    engine.publish(0)
    engine.generate(requests)
    BasePolicy(policy).logprobs(batch_of(policy), temperature=1.0)
    engine.generate(requests)  # being switched off and on is no change
    with torch.no_grad():
        list(adapter_parameters(policy.model).values())[-1].add_(0.01)
    with pytest.raises(EngineError, match="changed since they were published"):
        engine.generate(requests)


@pytest.fixture
def saved(tmp_path: Path) -> tuple[LlasaPolicy, Path]:
    """A policy with an adapter, and the folder where that is saved; its base lies beside, in `base`."""
    base = tmp_path / "base"
    small_llasa().save_pretrained(str(base))
    policy = adapted()
    save_adapter(policy.model, str(tmp_path / "adapter"), base=describe_base(str(base)))
    return policy, tmp_path / "adapter"


@peft_opens
def test_peft_alone_opens_a_saved_adapter_and_computes_the_same(saved: tuple[LlasaPolicy, Path]) -> None:
    policy, path = saved
    opened = peft.PeftModel.from_pretrained(small_llasa().llama, str(path))
    with torch.no_grad():
        assert torch.equal(opened(input_ids=IDS).logits, logits_of(policy))
        merged = opened.merge_and_unload()
        assert torch.allclose(merged(input_ids=IDS).logits, logits_of(policy), atol=1e-4)
    assert not any(parameter.requires_grad for parameter in opened.parameters())


@peft_opens
def test_an_adapter_that_peft_saved_is_loaded(saved: tuple[LlasaPolicy, Path], tmp_path: Path) -> None:
    policy, path = saved
    peft.PeftModel.from_pretrained(small_llasa().llama, str(path)).save_pretrained(str(tmp_path / "by-peft"))
    (tmp_path / "by-peft" / "base.json").write_text((path / "base.json").read_text())
    assert torch.equal(logits_of(load_policy("llasa", tmp_path / "by-peft")), logits_of(policy))


def test_a_saved_adapter_is_loaded_onto_its_base_to_the_bit_and_can_be_trained_on(
    saved: tuple[LlasaPolicy, Path],
) -> None:
    policy, path = saved
    again = load_policy("llasa", path)
    one, other = (adapter_parameters(each.model) for each in (policy, again))
    assert list(one) == list(other)
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert all(parameter.requires_grad for parameter in other.values())
    assert torch.equal(logits_of(again), logits_of(policy))
    assert sum(file.stat().st_size for file in path.iterdir()) < 400_000  # the base has 9.5 MB


def test_a_base_that_moved_or_changed_is_an_error_with_its_path(saved: tuple[LlasaPolicy, Path]) -> None:
    _, path = saved
    base, weights = path.parent / "base", path.parent / "base" / "model.safetensors"
    (base / "README.md").write_text("may change")
    load_policy("llasa", path)
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(bytes(content))
    with pytest.raises(CheckpointError, match=rf"was at {re.escape(str(base))} with digest"):
        load_policy("llasa", path)
    base.rename(path.parent / "elsewhere")
    with pytest.raises(CheckpointError, match=rf"belongs to the checkpoint {re.escape(str(base))}, which is not there"):
        load_policy("llasa", path)
    (path / "base.json").unlink()
    with pytest.raises(CheckpointError, match=r"cannot tell the base .*base\.json"):
        load_policy("llasa", path)


def rewrite(path: Path, **values: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("truncate", "cannot load the adapter"),
        ("no weights", "cannot load the adapter"),
        ("lose a tensor", r"does not fit the model: base_model\.model\.model\.layers\.2\.mlp\.up_proj\.lora_B\.weight"),
        ("wrong shape", r"does not fit the model: base_model\.model\.model\.layers\.2\.mlp\.up_proj\.lora_B\.weight"),
        ("dropout", r"lora_dropout is 0\.1, must be 0"),
        ("dora", "does not fit the model: .*lora_magnitude_vector"),
        ("other kind", "peft_type is 'LOHA'"),
        ("future", "does not know: turbo"),
        ("not json", "cannot load the adapter"),
        ("a list", "must hold a JSON object, found list"),
        ("huge rank", "a rank is 10000000, must be a number from 1 to 1024"),
        ("odd setting", "cannot load the adapter .*: AttributeError: "),
        ("not finite", r"the tensor .*layers\.2\.mlp\.up_proj\.lora_B\.weight in .* not finite"),
        (
            "integers",
            r"the tensor .*layers\.2\.mlp\.up_proj\.lora_B\.weight in .* torch\.int8 .*expected floating-point",
        ),
    ],
)
def test_a_damaged_or_foreign_adapter_is_named(saved: tuple[LlasaPolicy, Path], damage: str, message: str) -> None:
    _, path = saved
    weights, config = path / "adapter_model.safetensors", path / "adapter_config.json"
    if damage == "truncate":
        weights.write_bytes(weights.read_bytes()[:-5])
    elif damage == "no weights":
        weights.unlink()
    elif damage in ("lose a tensor", "wrong shape", "not finite", "integers"):
        tensors = load_file(weights)
        lost = tensors.pop("base_model.model.model.layers.2.mlp.up_proj.lora_B.weight")
        if damage == "wrong shape":
            tensors["base_model.model.model.layers.2.mlp.up_proj.lora_B.weight"] = lost[:, :3].contiguous()
        elif damage == "not finite":
            tensors["base_model.model.model.layers.2.mlp.up_proj.lora_B.weight"] = lost / 0
        elif damage == "integers":
            tensors["base_model.model.model.layers.2.mlp.up_proj.lora_B.weight"] = lost.to(torch.int8)
        save_file(tensors, weights)
    elif damage == "not json":
        config.write_text("{")
    elif damage == "a list":
        config.write_text("[]")
    else:
        changes: dict[str, dict[str, object]] = {
            "dropout": {"lora_dropout": 0.1},
            "huge rank": {"r": 10_000_000},
            "odd setting": {"alpha_pattern": 5},
            "dora": {"use_dora": True},
            "other kind": {"peft_type": "LOHA"},
            "future": {"turbo": True, "harmless": None},
        }
        rewrite(config, **changes[damage])
    with pytest.raises(CheckpointError, match=message):
        load_policy("llasa", path)


def test_patterns_choose_among_the_layers_of_the_family() -> None:
    def layers(*patterns: str) -> set[str]:
        policy = adapted(settings=LoraSettings(rank=2, target_modules=patterns))
        return {name.partition(".lora_")[0] for name in adapter_parameters(policy.model)}

    assert layers("model.layers.[45].*", "v_proj") == {
        *(f"model.layers.{i}.self_attn.v_proj" for i in range(6)),
        *(f"model.layers.{i}.self_attn.{x}_proj" for i in (4, 5) for x in "qkvo"),
        *(f"model.layers.{i}.mlp.{x}_proj" for i in (4, 5) for x in ("gate", "up", "down")),
    }
    assert len(layers("*")) == 6 * 7  # the output matrix is none of them: sampling reads it directly
    for pattern in ("lm_head", "q_prog", "embed_tokens"):
        with pytest.raises(ConfigError, match=rf"'{pattern}' fits no layer.*there are q_proj, k_proj"):
            layers("*.q_proj", pattern)


def test_a_second_adapter_is_refused() -> None:
    policy = adapted()
    with pytest.raises(ConfigError, match="has an adapter already"):
        add_adapter(policy.model, LoraSettings(rank=2), targets=policy.lora_targets, seed=0)


def test_dropout_is_refused_with_its_reason() -> None:
    with pytest.raises(ConfigError, match=r"model\.lora\.dropout = 0\.1: must be 0, or sampling"):
        load_config(None, ["model.lora.rank=4", "model.lora.dropout=0.1"])
