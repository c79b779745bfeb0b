import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from elocution.errors import CheckpointError
from elocution.policies.base import PolicyBatch
from elocution.policies.llasa import STRUCTURAL_TOKENS, LlasaPolicy
from elocution.policies.padding import pad_prompts
from elocution.tiny.pretrain import build_policy, build_tokenizer
from elocution.types import Utterance

WORDS = ("one", "three", "mary", "painted", "the", "house")


@pytest.fixture(scope="module")
def policy() -> LlasaPolicy:
    """A checkpoint of the real architecture with random weights, in fp64 so that comparisons are exact."""
    built = build_policy(build_tokenizer(WORDS, 16), seed=0)
    built.model.double().eval()
    return built


def test_the_prompt_is_byte_exact_and_its_date_is_pinned(policy: LlasaPolicy) -> None:
    assert policy.render(Utterance("u", "mary painted the house")) == (
        "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\n"
        "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\n"
        "Convert the text to speech:<|TEXT_UNDERSTANDING_START|>mary painted the house<|TEXT_UNDERSTANDING_END|>"
        "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n<|SPEECH_GENERATION_START|>"
    )


def test_ids_come_from_the_tokenizer_in_llasas_order(policy: LlasaPolicy) -> None:
    ids = policy.tokenizer.convert_tokens_to_ids([*STRUCTURAL_TOKENS, "<|s_0|>", "<|s_15|>"])
    first = policy.first_code_id
    assert ids == [*range(first - 8, first), first, first + 15]
    assert policy.stop_ids == {first - 3}
    assert policy.legal_ids.tolist() == [first - 3, *range(first, first + 16)]


def test_codes_leave_out_what_is_no_code(policy: LlasaPolicy) -> None:
    first = policy.first_code_id
    ids = np.array([[first + 4], [first - 8], [first + 15], [first + 16], [policy.stop_id]])
    assert policy.codes(ids).tolist() == [[4], [15]]
    assert policy.codes(policy.completion_ids(np.array([[4], [15]]))).tolist() == [[4], [15]]


def test_words_outside_the_vocabulary_are_named(policy: LlasaPolicy) -> None:
    assert policy.check_text(Utterance("u", "Mary painted the house.")) is None
    reason = policy.check_text(Utterance("u", "mary painted a zebra"))
    assert reason == "words outside the checkpoint's vocabulary: a, zebra"


def batch_of(policy: LlasaPolicy, texts: list[str], rows: list[int], lengths: list[int]) -> PolicyBatch:
    ids, mask = pad_prompts([policy.prompt_ids(Utterance("u", text)) for text in texts])
    generator = torch.Generator().manual_seed(7)
    shape = (len(rows), max(lengths), 1)
    completion = policy.legal_ids[torch.randint(len(policy.legal_ids), shape, generator=generator)]
    completion_mask = torch.arange(max(lengths))[None, :, None] < torch.tensor(lengths)[:, None, None]
    return PolicyBatch(ids, mask, torch.tensor(rows), completion, completion_mask)


def test_s40_s47_logprobs_equal_one_plain_forward_pass_for_each_completion(policy: LlasaPolicy) -> None:
    texts = ["one", "mary painted the house three three"]
    batch = batch_of(policy, texts, rows=[0, 1, 1, 0], lengths=[5, 9, 1, 7])
    logprobs, entropy = policy.logprobs(batch, temperature=0.8)
    for row in range(4):
        prompt = torch.from_numpy(policy.prompt_ids(Utterance("u", texts[batch.row_prompt[row]])))
        length = int(batch.completion_mask[row].sum())
        ids = torch.cat([prompt, batch.completion_ids[row, :length, 0]])
        logits = policy.llama(input_ids=ids[None]).logits[0, len(prompt) - 1 : -1, policy.legal_ids] / 0.8
        full = torch.log_softmax(logits, dim=-1)
        chosen = torch.searchsorted(policy.legal_ids, batch.completion_ids[row, :length, 0])
        assert torch.allclose(logprobs[row, :length, 0], full[torch.arange(length), chosen], atol=1e-10)
        assert torch.allclose(entropy[row, :length, 0], -(full.exp() * full).sum(-1), atol=1e-10)
        assert logprobs[row, length:].abs().sum() == 0


def test_gradients_equal_those_without_a_shared_prompt(policy: LlasaPolicy) -> None:
    texts = ["one three", "mary painted the house"]
    shared = batch_of(policy, texts, rows=[0, 0, 1], lengths=[4, 6, 5])
    alone = PolicyBatch(
        shared.prompt_ids[shared.row_prompt],
        shared.prompt_mask[shared.row_prompt],
        torch.arange(3),
        shared.completion_ids,
        shared.completion_mask,
    )
    gradients = []
    for batch in (shared, alone):
        policy.model.zero_grad()
        policy.logprobs(batch, temperature=1.0)[0].sum().backward()
        gradients.append([parameter.grad.clone() for parameter in policy.model.parameters()])  # type: ignore[union-attr]
    for one, other in zip(*gradients, strict=True):
        # transformers normalises in fp32, whatever the weights are in.
        assert torch.allclose(one, other, rtol=1e-5, atol=1e-5)


def test_saving_and_loading_keep_logits_and_prompt(policy: LlasaPolicy, tmp_path: Path) -> None:
    policy.save_pretrained(str(tmp_path))
    again = LlasaPolicy.from_pretrained(tmp_path, dtype=torch.float64)
    utterance = Utterance("u", "mary painted the house")
    assert np.array_equal(again.prompt_ids(utterance), policy.prompt_ids(utterance))
    ids = torch.from_numpy(policy.prompt_ids(utterance))[None]
    # Rotary frequencies are made in fp32 on loading and cast to fp64 in the fixture.
    assert torch.allclose(again.llama(input_ids=ids).logits, policy.llama(input_ids=ids).logits, atol=1e-5)


@pytest.mark.parametrize("damage", ["truncate", "no weights", "no config", "lost tensor"])
def test_a_damaged_checkpoint_is_named(policy: LlasaPolicy, tmp_path: Path, damage: str) -> None:
    policy.save_pretrained(str(tmp_path))
    weights = tmp_path / "model.safetensors"
    if damage == "truncate":
        weights.write_bytes(weights.read_bytes()[:5000])
    elif damage == "no weights":
        weights.unlink()
    elif damage == "no config":
        (tmp_path / "config.json").unlink()
    else:
        tensors = load_file(weights)
        del tensors["model.layers.2.mlp.up_proj.weight"]
        save_file(tensors, weights, metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=re.escape(str(tmp_path))):
        LlasaPolicy.from_pretrained(tmp_path)


def test_s33_a_gap_in_the_code_block_is_refused() -> None:
    tokenizer = build_tokenizer(WORDS, 4)
    tokenizer.add_tokens(["<|s_5|>"])
    model = build_policy(build_tokenizer(WORDS, 16), seed=0).llama
    with pytest.raises(CheckpointError, match="without a gap"):
        LlasaPolicy(model, tokenizer)


def test_s33_a_head_smaller_than_the_code_block_is_refused() -> None:
    with pytest.raises(CheckpointError, match="output rows"):
        LlasaPolicy(build_policy(build_tokenizer(WORDS, 4), seed=0).llama, build_tokenizer(WORDS, 16))


@pytest.mark.parametrize("config", ['{"model_type": "gpt2"}', "{}", "[]", "not json", "[" * 100_000])
def test_s33_another_architecture_is_refused(policy: LlasaPolicy, tmp_path: Path, config: str) -> None:
    policy.save_pretrained(str(tmp_path))
    (tmp_path / "config.json").write_text(config)
    with pytest.raises(CheckpointError, match=r"config\.json"):
        LlasaPolicy.from_pretrained(tmp_path)


def edit_json(path: Path, **changes: Any) -> None:
    """Changes fields of the object in the file; one that becomes `...` is taken out."""
    fields = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in fields.items() if value is not ...}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": -192}, r"hidden_size = -192: .* greater than or equal to 1"),
        ({"hidden_size": "192"}, "hidden_size = '192': .* valid integer"),
        ({"hidden_size": 190}, "hidden_size = 190 is no multiple of num_attention_heads = 6"),
        ({"num_attention_heads": 0}, "num_attention_heads = 0"),
        ({"num_key_value_heads": 4}, "num_attention_heads = 6 is no multiple of num_key_value_heads = 4"),
        ({"head_dim": 33}, "head must be even"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers = 1000000000"),
        ({"vocab_size": ...}, "the field vocab_size is missing"),
        ({"max_position_embeddings": None}, "max_position_embeddings = None"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps = nan"),
        ({"tie_word_embeddings": 1}, "tie_word_embeddings = 1: .* boolean"),
        ({"hidden_act": "relu"}, "hidden_act = 'relu'"),
        ({"attention_bias": True}, "attention_bias = true"),
        ({"pad_token_id": 10**9}, "pad_token_id = .1000000000. must be below vocab_size"),
        ({"eos_token_id": ["a"]}, r"eos_token_id.* valid integer"),
        ({"rope_parameters": [1]}, r"rope_parameters = \[1\]"),
        ({"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}}, "rope_parameters.rope_type = 'dynamic' must be"),
        ({"rope_parameters": {"rope_theta": -1}}, "rope_parameters.rope_theta = -1 must be a positive number"),
        (
            {"rope_scaling": {"rope_type": "llama3", "factor": 8.0}},
            "rope_scaling has no high_freq_factor, low_freq_fac",
        ),
        ({"rope_scaling": {"type": "linear"}}, "rope_scaling has no factor"),
        ({"quantization_config": {"quant_method": "gptq"}}, "quantization_config"),
        ({"codec_frame_rate": "25"}, "codec_frame_rate = '25'"),
    ],
)
def test_an_odd_config_is_one_error_with_file_and_field(
    policy: LlasaPolicy, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    policy.save_pretrained(str(tmp_path))
    edit_json(tmp_path / "config.json", **changes)
    with pytest.raises(CheckpointError, match=message) as caught:
        LlasaPolicy.from_pretrained(tmp_path)
    assert str(caught.value).startswith(f"{tmp_path / 'config.json'}: ")
    assert "\n" not in str(caught.value)


def test_fields_that_nothing_reads_do_no_harm(policy: LlasaPolicy, tmp_path: Path) -> None:
    policy.save_pretrained(str(tmp_path))
    edit_json(tmp_path / "config.json", num_labels=10**12, id2label=5, auto_map=None, dtype="nonsense", architectures=3)
    again = LlasaPolicy.from_pretrained(tmp_path)
    assert again.llama.config.hidden_size == 192


def test_a_config_of_another_size_than_the_weights_is_named_by_tensor(policy: LlasaPolicy, tmp_path: Path) -> None:
    policy.save_pretrained(str(tmp_path))
    edit_json(tmp_path / "config.json", intermediate_size=9_000_000)  # would not fit into memory
    message = r"mlp\.\w+_proj\.weight in .*model\.safetensors has shape .*, but config\.json makes it .*9000000"
    with pytest.raises(CheckpointError, match=message):
        LlasaPolicy.from_pretrained(tmp_path)


NAME = "model.layers.2.mlp.up_proj.weight"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda tensor: torch.zeros_like(tensor), "is all zero"),
        (lambda tensor: tensor.masked_fill(torch.arange(192) == 7, float("nan")), "not finite"),
        (lambda tensor: tensor.masked_fill(torch.arange(192) == 7, float("-inf")), "not finite"),
        (lambda tensor: (tensor * 100).to(torch.int8), "holds I8 values, expected floating-point"),
        (lambda tensor: (tensor * 100).long(), "holds I64 values, expected floating-point"),
        (lambda tensor: tensor[:, :-1].clone(), r"has shape \[512, 191\], but config\.json makes it \[512, 192\]"),
    ],
)
@pytest.mark.parametrize("suffix", ["safetensors", "bin"])
def test_weights_that_can_compute_nothing_are_named(
    policy: LlasaPolicy, tmp_path: Path, damage: Callable[[Tensor], Tensor], message: str, suffix: str
) -> None:
    policy.save_pretrained(str(tmp_path))
    weights = tmp_path / "model.safetensors"
    tensors = load_file(weights)
    tensors[NAME] = damage(tensors[NAME])
    if suffix == "bin":
        weights.unlink()
        torch.save(tensors, tmp_path / "pytorch_model.bin")
        message = message.replace("I8", "torch.int8").replace("I64", "torch.int64")
    else:
        save_file(tensors, weights, metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=rf"the tensor {re.escape(NAME)} in .*{message}"):
        LlasaPolicy.from_pretrained(tmp_path)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("tokenizer.json", "{}"),
        ("tokenizer.json", "[" * 1000),
        ("tokenizer_config.json", '{"model_max_length": "many"}'),
        ("tokenizer_config.json", "[]"),
        ("chat_template.jinja", "{% if %}"),
        ("chat_template.jinja", "{{ messages[5]['content'].x }}"),
        ("chat_template.jinja", "a template without messages"),
    ],
)
def test_damaged_text_files_are_one_error_at_loading(
    policy: LlasaPolicy, tmp_path: Path, file: str, content: str
) -> None:
    policy.save_pretrained(str(tmp_path))
    (tmp_path / file).write_text(content)
    with pytest.raises(CheckpointError, match=r"cannot load the checkpoint|chat template"):
        LlasaPolicy.from_pretrained(tmp_path)
