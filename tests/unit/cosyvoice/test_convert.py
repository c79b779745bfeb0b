"""`llm.pt` to the folder that is trained and back, against the native class and the published layouts."""

import json
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from native_model import (
    NUM_CODES,
    SpeechLM,
    build,
    publish,
    published_tokenizer,
    text_config,
    text_tokenizer,
    write_model_folder,
)
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig
from typer.testing import CliRunner

from elocution.cli.main import app
from elocution.errors import CheckpointError, ExportError
from elocution.export.cosyvoice import to_huggingface, to_native
from elocution.export.cosyvoice_tokens import V2_SPECIAL, V3_SPECIAL
from elocution.policies import load_policy
from elocution.policies.cosyvoice_ids import read_ids

SPECIAL = {"v2": list(V2_SPECIAL), "v3": list(V3_SPECIAL), "v3-alias": list(V3_SPECIAL)}
TEXT, CODES = "你好, hi", [5, 80, 0, 41]


def state(model: SpeechLM) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def hf_logits(folder: Path, generation: int) -> torch.Tensor:
    """Of our policy, over the rows of the native head."""
    policy = load_policy(f"cosyvoice{generation}", folder)
    ids = read_ids(policy.tokenizer)
    prompt = policy.tokenizer.encode(f"<|sos|>{TEXT}<|task_id|>", add_special_tokens=False)
    read = torch.tensor([*prompt, *ids.rows[CODES]])
    with torch.no_grad():
        return policy.model(input_ids=read[None]).logits[0, len(prompt) - 1 :, torch.from_numpy(ids.rows)]


@pytest.fixture(params=[2, 3], ids=["v2", "v3"])
def generation(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def source(generation: int, tmp_path: Path) -> tuple[SpeechLM, Path]:
    model = build(generation)
    return model, write_model_folder(model, tmp_path / "native", generation)


def test_s73_native_and_folder_give_the_same_logits(
    source: tuple[SpeechLM, Path], generation: int, tmp_path: Path
) -> None:
    model, folder = source
    done = to_huggingface(folder, tmp_path / "hf")
    assert done.ids.generation == generation
    assert done.tensors == len(model.state_dict())
    assert done.logits < 1e-5
    wanted = model.logits(text_tokenizer().encode(TEXT), CODES)
    assert torch.allclose(hf_logits(tmp_path / "hf", generation), wanted, atol=1e-5)
    assert wanted.abs().max() > 1  # or nothing was compared


def test_a_round_trip_is_bit_identical_and_loads_strictly(
    source: tuple[SpeechLM, Path], generation: int, tmp_path: Path
) -> None:
    model, folder = source
    to_huggingface(folder, tmp_path / "hf")
    to_native(tmp_path / "hf", tmp_path / "llm.pt")
    again = torch.load(tmp_path / "llm.pt", weights_only=True)
    assert again.keys() == model.state_dict().keys()
    assert all(torch.equal(again[name], tensor) for name, tensor in model.state_dict().items())
    fresh = build(generation, seed=1)
    fresh.load_state_dict(again, strict=True)
    assert (tmp_path / "llm.pt").stat().st_size < 1.1 * (folder / "llm.pt").stat().st_size  # a tied head is stored once


def test_an_untied_head_of_the_text_model_comes_back_too(source: tuple[SpeechLM, Path], tmp_path: Path) -> None:
    model, folder = source
    tensors = state(model)
    tensors["llm.model.lm_head.weight"] += 1
    torch.save(tensors, folder / "llm.pt")
    to_huggingface(folder, tmp_path / "hf")
    to_native(tmp_path / "hf", tmp_path / "llm.pt")
    again = torch.load(tmp_path / "llm.pt", weights_only=True)
    assert all(torch.equal(again[name], tensor) for name, tensor in tensors.items())


def test_bf16_is_rounded_once(source: tuple[SpeechLM, Path], tmp_path: Path) -> None:
    model, folder = source
    to_huggingface(folder, tmp_path / "hf", dtype="bf16")
    assert {t.dtype for t in load_file(tmp_path / "hf" / "model.safetensors").values()} == {torch.bfloat16}
    to_native(tmp_path / "hf", tmp_path / "llm.pt")
    again = torch.load(tmp_path / "llm.pt", weights_only=True)
    assert all(torch.equal(again[name], tensor.bfloat16()) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize("layout", ["v2", "v3", "v3-alias"])
@pytest.mark.parametrize("shard", ["5GB", "20KB"])
def test_folders_of_the_published_converters_are_read_in_one_file_or_in_shards(
    layout: str, shard: str, tmp_path: Path
) -> None:
    generation = 2 if layout == "v2" else 3
    model = build(generation)
    folder = publish(model, layout, SPECIAL[layout], tmp_path / "hf", shard=shard)
    assert (len(list(folder.glob("model*.safetensors"))) > 1) == (shard == "20KB")
    wanted = model.logits(text_tokenizer().encode(TEXT), CODES)
    assert torch.allclose(hf_logits(folder, generation), wanted, atol=1e-5)
    native = write_model_folder(model, tmp_path / "native", generation)
    to_native(folder, tmp_path / "llm.pt", original=native)
    again = torch.load(tmp_path / "llm.pt", weights_only=True)
    assert all(torch.equal(again[name], tensor) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize("layout", ["v2", "v3"])
def test_our_folder_has_the_ids_and_tables_of_the_published_one(layout: str, tmp_path: Path) -> None:
    generation = 2 if layout == "v2" else 3
    model = build(generation)
    to_huggingface(write_model_folder(model, tmp_path / "native", generation), tmp_path / "ours")
    publish(model, layout, SPECIAL[layout], tmp_path / "published")
    ours, theirs = (AutoTokenizer.from_pretrained(tmp_path / name) for name in ("ours", "published"))
    assert ours.get_vocab() == theirs.get_vocab()
    messages = [{"role": "user", "content": "hi [breath] 你"}, {"role": "assistant", "content": "<|s_7|>"}]
    rendered = ours.apply_chat_template(messages, tokenize=False)
    assert rendered == theirs.apply_chat_template(messages, tokenize=False)
    assert ours.encode(rendered) == theirs.encode(rendered)
    mine, published = (load_file(tmp_path / name / "model.safetensors") for name in ("ours", "published"))
    assert mine.keys() == published.keys()
    used = len(ours)
    for name, tensor in published.items():
        rows = (
            slice(used) if name == "model.embed_tokens.weight" else slice(None)
        )  # rows behind the tokens mean nothing
        assert torch.equal(mine[name][rows], tensor[rows]), name
    config = json.loads((tmp_path / "ours" / "config.json").read_text())
    assert config["architectures"] == ["Qwen2ForCausalLM"]
    assert config["vocab_size"] % 128 == 0
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "ours").config.vocab_size == config["vocab_size"]


def test_ids_are_those_of_the_released_vocabularies() -> None:
    v2 = read_ids(published_tokenizer("v2", SPECIAL["v2"], 6561, 151_643 - 256))
    assert (v2.first_code, v2.rows[6560], v2.eos, v2.sos, v2.task) == (151_663, 158_223, 158_224, 158_227, 158_228)
    assert v2.stops == (158_224, 158_225, 158_226)
    v3 = read_ids(published_tokenizer("v3", SPECIAL["v3"], 6561, 151_643 - 256))
    assert (v3.first_code, v3.sos, v3.eos, v3.task, v3.stops[3]) == (151_924, 158_485, 158_486, 158_487, 158_488)
    assert len(v3.rows) == 6761
    assert len(SPECIAL["v3"]) == 280
    alias = read_ids(published_tokenizer("v3-alias", SPECIAL["v3"], 6561, 151_643 - 256))
    assert (alias.first_code, alias.sos, alias.eos, alias.task) == (151_924, 158_685, 158_686, 158_687)
    assert not set(alias.stops) & {158_485, 158_486, 158_487}


def test_generation_ends_at_every_native_stop(source: tuple[SpeechLM, Path], generation: int, tmp_path: Path) -> None:
    done = to_huggingface(source[1], tmp_path / "hf")
    written = GenerationConfig.from_pretrained(tmp_path / "hf")
    assert written.eos_token_id == list(done.ids.stops)
    assert len(done.ids.stops) == (3 if generation == 2 else 200)


def test_the_form_without_bias_is_measured_and_opens_in_transformers(tmp_path: Path) -> None:
    model = build(2)
    folder = write_model_folder(model, tmp_path / "native", 2)
    result = CliRunner().invoke(
        app, ["convert", "cosyvoice2", "to-hf", str(folder), "--to", str(tmp_path / "hf"), "--bias", "drop"]
    )
    assert result.exit_code == 0, result.output
    assert "without the bias, log-probs of speech differ by up to" in result.output
    done = to_huggingface(folder, tmp_path / "again", bias="drop")
    assert done.without_bias is not None
    plain = AutoModelForCausalLM.from_pretrained(tmp_path / "hf")
    ids = done.ids
    text = text_tokenizer().encode("the little brother was young")
    codes = [place * NUM_CODES // 32 for place in range(32)]
    read = torch.tensor([ids.sos, *text, ids.task, *ids.rows[codes]])
    with torch.no_grad():
        whole = plain(input_ids=read[None]).logits[0, len(text) + 1 :]
    with_bias = model.logits(text, codes)
    assert torch.allclose(whole[:, ids.rows], with_bias - model.llm_decoder.bias, atol=1e-5)
    difference = (with_bias.log_softmax(-1) - whole[:, ids.rows].log_softmax(-1)).abs().max().item()
    assert done.without_bias.logprob == pytest.approx(difference, rel=1e-4)
    assert done.without_bias.logprob > 0.1
    others = 1 - whole.softmax(-1)[:, ids.rows].sum(-1).mean().item()
    assert done.without_bias.escaped == pytest.approx(others, rel=1e-3)
    assert done.without_bias.escaped > 0.01  # rows of text have the logit 0, and there are many


def test_the_bias_is_put_back_or_its_absence_must_be_chosen(tmp_path: Path) -> None:
    model = build(2)
    native = write_model_folder(model, tmp_path / "native", 2)
    to_huggingface(native, tmp_path / "hf", bias="drop")
    to_native(tmp_path / "hf", tmp_path / "restored.pt")
    again = torch.load(tmp_path / "restored.pt", weights_only=True)
    assert all(torch.equal(again[name], tensor) for name, tensor in model.state_dict().items())
    (tmp_path / "hf" / "llm_pt_rest.safetensors").unlink()  # as after training in software that knows no bias
    with pytest.raises(CheckpointError, match=r"the folder has no lm_head\.bias.*--original.*--zero-bias"):
        to_native(tmp_path / "hf", tmp_path / "llm.pt")
    done = to_native(tmp_path / "hf", tmp_path / "llm.pt", original=native)
    assert done.without_bias is not None
    assert torch.equal(torch.load(tmp_path / "llm.pt", weights_only=True)["llm_decoder.bias"], model.llm_decoder.bias)
    to_huggingface(native, tmp_path / "hf2", bias="drop")
    to_native(tmp_path / "hf2", tmp_path / "zero.pt", zero_bias=True)
    assert not torch.load(tmp_path / "zero.pt", weights_only=True)["llm_decoder.bias"].any()


def test_a_text_table_of_unknown_size_is_asked_for(tmp_path: Path) -> None:
    folder = publish(build(3), "v3", SPECIAL["v3"], tmp_path / "hf")
    with pytest.raises(CheckpointError, match=r"how many rows the text table had is not known.*--original"):
        to_native(folder, tmp_path / "llm.pt")


class Harmful:
    """Makes a file, if unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.path),)


def test_pickled_code_is_refused_and_not_run(source: tuple[SpeechLM, Path], tmp_path: Path) -> None:
    model, folder = source
    torch.save(model.state_dict() | {"epoch": Harmful(tmp_path / "ran")}, folder / "llm.pt")
    with pytest.raises(CheckpointError, match="holds more than weights, and loading the rest would run code"):
        to_huggingface(folder, tmp_path / "hf")
    (folder / "llm.pt").write_bytes(pickle.dumps(Harmful(tmp_path / "ran")))
    with pytest.raises(CheckpointError, match=r"llm\.pt"):
        to_huggingface(folder, tmp_path / "hf")
    assert not (tmp_path / "ran").exists()
    assert not (tmp_path / "hf").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda t: t.pop("llm.model.model.norm.weight"),
            r"lacks llm\.model\.model\.norm\.weight \(1 missing, 0 too many\)",
        ),
        (lambda t: t.update(extra=torch.ones(2)), r"has also extra \(0 missing, 1 too many\)"),
        (lambda t: t.update(step=7), "holds entries that are no tensors: step"),
        (lambda t: t.pop("speech_embedding.weight"), r"it has no speech_embedding\.weight"),
        (
            lambda t: t.update({"llm_decoder.weight": torch.ones(9, 16)}),
            r"llm_decoder\.weight has shape \[9, 16\], expected",
        ),
        (
            lambda t: t.update({"llm.model.model.norm.weight": torch.full((16,), float("nan"))}),
            "holds values that are not finite",
        ),
    ],
    ids=["missing", "extra", "no tensor", "no speech", "shape", "nan"],
)
def test_s33_a_file_that_is_not_whole_is_refused(
    source: tuple[SpeechLM, Path], tmp_path: Path, change, message
) -> None:
    model, folder = source
    tensors: dict[str, object] = dict(state(model))
    change(tensors)
    torch.save(tensors, folder / "llm.pt")
    with pytest.raises(CheckpointError, match=message):
        to_huggingface(folder, tmp_path / "hf")
    assert not (tmp_path / "hf").exists()


def test_a_file_with_parts_of_both_or_under_the_others_yaml_is_refused(tmp_path: Path) -> None:
    model = build(2)
    folder = write_model_folder(model, tmp_path / "v2", 2)
    tensors = state(model)
    del tensors["llm_decoder.bias"]
    torch.save(tensors, folder / "llm.pt")
    with pytest.raises(
        CheckpointError, match=r"has llm_embedding\.weight, as CosyVoice2 does, but no llm_decoder\.bias"
    ):
        to_huggingface(folder, tmp_path / "hf")
    third = write_model_folder(build(3), tmp_path / "v3", 3)
    (third / "cosyvoice3.yaml").rename(third / "cosyvoice2.yaml")
    with pytest.raises(CheckpointError, match=r"has cosyvoice2\.yaml, but its llm\.pt has the tables of CosyVoice3"):
        to_huggingface(third, tmp_path / "hf")


def test_a_truncated_file_or_a_missing_one_is_one_error(source: tuple[SpeechLM, Path], tmp_path: Path) -> None:
    folder = source[1]
    whole = (folder / "llm.pt").read_bytes()
    (folder / "llm.pt").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CheckpointError, match=r"cannot load .*llm\.pt"):
        to_huggingface(folder, tmp_path / "hf")
    (folder / "llm.pt").unlink()
    with pytest.raises(CheckpointError, match=r"there is no file .*llm\.pt"):
        to_huggingface(folder, tmp_path / "hf")


def test_layouts_are_never_mixed(tmp_path: Path) -> None:
    folder = publish(build(3), "v3", SPECIAL["v3"], tmp_path / "hf")
    with pytest.raises(CheckpointError, match=r"layout v3 of CosyVoice3.*set model\.family = 'cosyvoice3'"):
        load_policy("cosyvoice2", folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens(["<|eos|>"])
    with pytest.raises(CheckpointError, match="mixes the layouts v3 and v3-alias"):
        read_ids(tokenizer)
    with pytest.raises(CheckpointError, match="none of the control tokens"):
        read_ids(text_tokenizer())
    broken = published_tokenizer("v2", ["<|s_81|>", *SPECIAL["v2"]])
    with pytest.raises(CheckpointError, match=r"<\|s_81\|> has id \d+, expected \d+ in the layout v2 with 82 codes"):
        read_ids(broken)


def test_s33_shards_must_be_those_of_the_index(tmp_path: Path) -> None:
    folder = publish(build(2), "v2", SPECIAL["v2"], tmp_path / "hf", shard="20KB")
    shard = sorted(folder.glob("model-*.safetensors"))[0]
    tensors = load_file(shard)
    save_file(dict(list(tensors.items())[1:]), shard)
    with pytest.raises(CheckpointError, match="and the files it names differ in"):
        to_native(folder, tmp_path / "llm.pt")
    shard.unlink()
    with pytest.raises(CheckpointError, match="cannot load the weights in"):
        to_native(folder, tmp_path / "llm.pt")
    index = folder / "model.safetensors.index.json"
    written = json.loads(index.read_text())
    written["weight_map"]["x"] = "../elsewhere.safetensors"
    index.write_text(json.dumps(written))
    with pytest.raises(CheckpointError, match="outside the folder"):
        to_native(folder, tmp_path / "llm.pt")


def test_a_folder_with_another_tensor_is_refused(tmp_path: Path) -> None:
    folder = publish(build(2), "v2", SPECIAL["v2"], tmp_path / "hf")
    tensors = load_file(folder / "model.safetensors")
    save_file({**tensors, "score.weight": torch.ones(2)}, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"first score\.weight: found \[2\], expected no such tensor"):
        to_native(folder, tmp_path / "llm.pt")


def test_nothing_is_overwritten(source: tuple[SpeechLM, Path], tmp_path: Path) -> None:
    (tmp_path / "hf").mkdir()
    with pytest.raises(ExportError, match="is there already"):
        to_huggingface(source[1], tmp_path / "hf")
    done = to_huggingface(source[1], tmp_path / "hf2")
    assert np.array_equal(done.ids.rows[:2], [done.ids.first_code, done.ids.first_code + 1])
    (tmp_path / "llm.pt").touch()
    with pytest.raises(ExportError, match="is there already"):
        to_native(tmp_path / "hf2", tmp_path / "llm.pt")
    assert (tmp_path / "llm.pt").stat().st_size == 0


def test_another_models_original_is_refused(tmp_path: Path) -> None:
    folder = publish(build(2), "v2", SPECIAL["v2"], tmp_path / "hf")
    torch.manual_seed(0)
    other = SpeechLM(2, text_config(300), num_codes=64)
    native = write_model_folder(other, tmp_path / "other", 2)
    with pytest.raises(CheckpointError, match=r"with 64 codes, .* is CosyVoice2 with 81"):
        to_native(folder, tmp_path / "llm.pt", original=native)
