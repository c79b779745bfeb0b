"""Exports are opened by transformers and peft themselves, and give the trained model's logits."""

import json
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig
from typer.testing import CliRunner

from elocution.cli.main import app
from elocution.config.load import dump_config, load_config
from elocution.config.tree import LoraSettings
from elocution.errors import CheckpointError, ElocutionError, ExportError
from elocution.export.huggingface import export_adapter, export_model
from elocution.export.source import find_source
from elocution.policies import Policy, load_policy
from elocution.policies.lora import adapter_parameters, add_adapter, describe_base, save_adapter
from elocution.testing.policies import small_llasa
from elocution.train.checkpoint import point_best_at, save_checkpoint
from elocution.types import Utterance

# peft asks transformers for an attribute by its older name.
peft_opens = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")

UTTERANCE = Utterance("u", "mary painted the house")


def ids_of(policy: Policy) -> torch.Tensor:
    return torch.from_numpy(policy.prompt_ids(UTTERANCE))[None]


def logits_of(model: torch.nn.Module, ids: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        found: torch.Tensor = model(input_ids=ids).logits
    return found


@pytest.fixture
def base(tmp_path: Path) -> Path:
    small_llasa().save_pretrained(str(tmp_path / "base"))
    return tmp_path / "base"


@pytest.fixture
def trained(base: Path) -> Policy:
    """A policy with an adapter that does something."""
    policy = load_policy("llasa", base)
    add_adapter(policy.model, LoraSettings(rank=2), targets=policy.lora_targets, seed=0, base_path=str(base))
    torch.manual_seed(1)
    for parameter in adapter_parameters(policy.model).values():
        torch.nn.init.normal_(parameter, std=0.05)
    return policy


@pytest.fixture
def run(tmp_path: Path, base: Path, trained: Policy) -> Path:
    """The directory of a run that trained the adapter."""
    place = tmp_path / "run"
    place.mkdir()
    (place / "config.toml").write_text(dump_config(load_config(None, [f"model.path={base}", "model.lora.rank=2"])))
    checkpoint = save_checkpoint(
        place / "checkpoints",
        lambda path: save_adapter(trained.model, path, base=describe_base(str(base))),
        torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))]).state_dict(),
        step=3,
        policy_version=3,
        keep=1,
    )
    point_best_at(place, checkpoint)
    return place


def test_s66_s73_the_best_of_a_run_opens_in_transformers_with_equal_logits(
    run: Path, base: Path, trained: Policy, tmp_path: Path
) -> None:
    shown = CliRunner().invoke(app, ["convert", "hf", str(run), "--to", str(tmp_path / "out")])
    assert shown.exit_code == 0, shown.output
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out", local_files_only=True)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out", local_files_only=True)
    ids = ids_of(trained)
    assert tokenizer.encode(tokenizer.decode(ids[0]), add_special_tokens=False) == ids[0].tolist()
    wanted = logits_of(trained.model, ids)
    assert torch.allclose(logits_of(model, ids), wanted, rtol=0, atol=1e-4 * float(wanted.abs().max()))
    assert (logits_of(load_policy("llasa", base).model, ids) - wanted).abs().max() > 0.01
    # What the tokenizer calls the end of a turn is not where speech ends.
    generation = GenerationConfig.from_pretrained(tmp_path / "out")
    assert generation.eos_token_id == tokenizer.convert_tokens_to_ids("<|SPEECH_GENERATION_END|>")
    assert generation.eos_token_id != tokenizer.eos_token_id


def test_all_weights_trained_are_exported_to_the_bit(tmp_path: Path) -> None:
    policy = small_llasa(seed=3)
    policy.save_pretrained(str(tmp_path / "model"))
    assert export_model(find_source(tmp_path / "model"), tmp_path / "out") == 0
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out", local_files_only=True)
    assert torch.equal(logits_of(model, ids_of(policy)), logits_of(policy.model, ids_of(policy)))


@pytest.mark.parametrize(("dtype", "expected"), [("bf16", torch.bfloat16), ("fp16", torch.float16)])
def test_weights_are_rounded_once(tmp_path: Path, dtype: str, expected: torch.dtype) -> None:
    policy = small_llasa(seed=3)
    policy.save_pretrained(str(tmp_path / "model"))
    difference = export_model(find_source(tmp_path / "model"), tmp_path / "out", dtype=dtype)
    assert 0 < difference < 0.1
    for name, tensor in load_file(tmp_path / "out" / "model.safetensors").items():
        assert torch.equal(tensor, policy.model.state_dict()[name].to(expected))
    assert json.loads((tmp_path / "out" / "config.json").read_text())["dtype"] == str(expected).removeprefix("torch.")


@peft_opens
def test_s66_the_adapter_alone_opens_in_peft_with_equal_logits(
    run: Path, base: Path, trained: Policy, tmp_path: Path
) -> None:
    export_adapter(find_source(run), tmp_path / "adapter", base="Someone/Llasa")
    model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), tmp_path / "adapter")
    ids = ids_of(trained)
    wanted = logits_of(trained.model, ids)
    assert torch.allclose(logits_of(model, ids), wanted, rtol=0, atol=1e-4 * float(wanted.abs().max()))
    assert json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())["base_model_name_or_path"] == (
        "Someone/Llasa"
    )
    shown = CliRunner().invoke(app, ["convert", "peft", str(run), "--to", str(tmp_path / "other")])
    assert shown.exit_code == 0, shown.output


def test_nothing_is_left_where_an_export_failed(base: Path, run: Path, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="is there already"):
        export_model(find_source(run), tmp_path)
    with pytest.raises(ExportError, match="is no adapter"):
        export_adapter(find_source(base), tmp_path / "out")
    tensors = load_file(base / "model.safetensors")
    save_file({name: tensor + 1 for name, tensor in tensors.items()}, base / "model.safetensors", {"format": "pt"})
    with pytest.raises(ElocutionError, match="what is there now has"):  # not the base that it was trained beside
        export_model(find_source(run), tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.glob(".out*"))


def test_a_source_that_is_none_is_named(run: Path, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="is no run, checkpoint or model folder"):
        find_source(tmp_path)
    (run / "best" / "model" / "adapter_model.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"adapter_model\.safetensors"):
        find_source(run)
    (run / "best").unlink()
    with pytest.raises(ExportError, match="no best checkpoint yet"):
        find_source(run)
