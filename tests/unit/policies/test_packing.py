"""Packed rows against one plain forward pass for each completion, on four decoder architectures of transformers."""

from itertools import chain
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    GPT2Config,
    GPT2Model,
    LlamaConfig,
    LlamaModel,
    Qwen2Config,
    Qwen2Model,
    Qwen3Config,
    Qwen3Model,
)

from elocution.policies.base import PolicyBatch
from elocution.policies.block_attention import block_attention
from elocution.policies.packing import PackedLayout, enable_packing, packed_hidden, padded_attention
from elocution.testing.policies import use_exact_norms

SIZES = {
    "vocab_size": 50,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
}


def build(name: str) -> Any:
    torch.manual_seed(0)
    models: dict[str, Any] = {
        "llama": LlamaModel(LlamaConfig(**SIZES)),
        "qwen2": Qwen2Model(Qwen2Config(**SIZES)),
        "qwen3": Qwen3Model(Qwen3Config(**SIZES)),
        "gpt2-learned-positions": GPT2Model(
            GPT2Config(
                vocab_size=50,
                n_embd=32,
                n_layer=2,
                n_head=4,
                n_positions=64,
                embd_pdrop=0,
                resid_pdrop=0,
                attn_pdrop=0,
                bos_token_id=0,
                eos_token_id=0,
            )
        ),
    }
    model = models[name]
    use_exact_norms(model)
    model.double().train()
    enable_packing(model)
    return model


PROMPTS = [[1, 2, 3, 4, 5, 6, 7], [8, 9], [10, 11, 12, 13]]
COMPLETIONS = [(0, [20, 21, 22, 23]), (0, [24]), (1, [25, 26]), (2, [27, 28, 29, 30, 31, 32]), (2, [33, 34, 35])]


def batch_of(
    prompts: list[list[int]],
    completions: list[tuple[int, list[int]]],
    *,
    left: bool = True,
    extra: int = 0,
    junk: int = 0,
) -> PolicyBatch:
    """`extra` padding cells more than needed on both grids; padding holds `junk`."""
    length = max(map(len, prompts)) + extra
    longest = max(len(ids) for _, ids in completions) + extra
    prompt_ids = torch.full((len(prompts), length), junk)
    prompt_mask = torch.zeros(len(prompts), length, dtype=torch.long)
    for row, ids in enumerate(prompts):
        place = slice(length - len(ids), None) if left else slice(len(ids))
        prompt_ids[row, place], prompt_mask[row, place] = torch.tensor(ids), 1
    completion_ids = torch.full((len(completions), longest, 1), junk)
    completion_mask = torch.zeros(len(completions), longest, 1, dtype=torch.bool)
    for row, (_, ids) in enumerate(completions):
        completion_ids[row, : len(ids), 0], completion_mask[row, : len(ids)] = torch.tensor(ids), True
    return PolicyBatch(
        prompt_ids, prompt_mask, torch.tensor([prompt for prompt, _ in completions]), completion_ids, completion_mask
    )


def one_by_one(model: Any) -> Tensor:
    hidden = []
    for prompt, ids in COMPLETIONS:
        read = torch.tensor([PROMPTS[prompt] + ids[:-1]])
        hidden.append(model(input_ids=read, use_cache=False).last_hidden_state[0, len(PROMPTS[prompt]) - 1 :])
    return torch.cat(hidden)


def gradients(model: Any, hidden: Tensor) -> list[Tensor]:
    """Of a sum in which every hidden number counts differently."""
    model.zero_grad()
    (hidden * torch.linspace(-1, 1, hidden.numel(), dtype=hidden.dtype).reshape(hidden.shape)).sum().backward()
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


@pytest.mark.parametrize("name", ["llama", "qwen2", "qwen3", "gpt2-learned-positions"])
@pytest.mark.parametrize("options", [{}, {"left": False}, {"extra": 3, "junk": 49}])
def test_s40_s41_s42_s47_hidden_states_and_gradients_are_those_of_one_pass_each(
    name: str, options: dict[str, int]
) -> None:
    model = build(name)
    batch = batch_of(PROMPTS, COMPLETIONS, **options)  # type: ignore[arg-type]
    hidden, plain = packed_hidden(model, batch), one_by_one(model)
    assert hidden.shape == (sum(len(ids) for _, ids in COMPLETIONS), 32)
    torch.testing.assert_close(hidden, plain, rtol=0, atol=1e-12)
    ours, theirs = gradients(model, hidden), gradients(model, plain)
    assert len(ours) == len(theirs) > 10
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=0, atol=1e-10)


@pytest.mark.parametrize("options", [{}, {"left": False}, {"extra": 3, "junk": 49}])
def test_padded_attention_for_other_devices_is_that_in_blocks(options: dict[str, int]) -> None:
    layout = PackedLayout.of(batch_of(PROMPTS, COMPLETIONS, **options))  # type: ignore[arg-type]
    generator = torch.Generator().manual_seed(0)
    inputs = [
        torch.randn(1, heads, len(layout.positions), 8, dtype=torch.float64, generator=generator).requires_grad_()
        for heads in (4, 2, 2)
    ]
    query, key, value = inputs
    padded = padded_attention(query, key, value, layout, 0.3)
    blocks = block_attention(query[0], key[0], value[0], layout.segments, scale=0.3).transpose(0, 1)[None]
    torch.testing.assert_close(padded, blocks, rtol=0, atol=1e-13)
    weights = torch.linspace(-1, 1, padded.numel(), dtype=torch.float64).reshape(padded.shape)
    for one, other in zip(*(torch.autograd.grad(out, inputs, weights) for out in (padded, blocks)), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def test_checkpointed_activations_change_no_gradient() -> None:
    model = build("llama")
    batch = batch_of(PROMPTS, COMPLETIONS)
    kept = gradients(model, packed_hidden(model, batch))
    model.activation_checkpointing_enable()
    again = gradients(model, packed_hidden(model, batch))
    assert all(torch.equal(a, b) for a, b in zip(kept, again, strict=True))


def test_a_row_has_no_padding_and_each_prompt_once() -> None:
    batch = batch_of(PROMPTS, COMPLETIONS, extra=5, junk=49)
    layout = PackedLayout.of(batch)
    read = [ids[:-1] for _, ids in COMPLETIONS]
    assert layout.pack(batch).tolist() == [*chain(*PROMPTS), *chain(*read)]
    assert layout.positions.tolist() == [
        *range(7), *range(2), *range(4), *range(7, 10), *range(2, 3), *range(4, 9), *range(4, 6)
    ]  # fmt: skip


def test_completions_of_one_id_are_predicted_from_their_prompts_alone() -> None:
    model = build("llama")
    batch = batch_of(PROMPTS, [(0, [20]), (1, [21])])
    plain = torch.cat(
        [model(input_ids=torch.tensor([PROMPTS[p]]), use_cache=False).last_hidden_state[0, -1:] for p in (0, 1)]
    )
    torch.testing.assert_close(packed_hidden(model, batch), plain, rtol=0, atol=1e-12)


def test_without_a_layout_the_model_is_as_before(recwarn: pytest.WarningsRecorder) -> None:
    model = build("qwen2")
    ids = torch.tensor([[0, 0, 1, 2, 3], [4, 5, 6, 7, 8]])
    mask = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]])
    ours = model(input_ids=ids, attention_mask=mask).last_hidden_state[mask.bool()]
    model.set_attn_implementation("sdpa")
    assert torch.equal(ours, model(input_ids=ids, attention_mask=mask).last_hidden_state[mask.bool()])
    assert not recwarn.list
