"""Llama-shaped decoders for the loop: hidden states with each prompt computed once, and lean one-token steps.

Works on transformers' own `LlamaForCausalLM`; knows no prompt format and no codec.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor
from transformers import DynamicCache, LlamaForCausalLM

from elocution.policies.base import PolicyBatch

__all__ = ["IncrementalLlama", "completion_hidden", "pad_prompts"]


def pad_prompts(prompts: Sequence[NDArray[np.int64]]) -> tuple[Tensor, Tensor]:
    """Prompts padded on the left with id 0, and the mask of what is real. Shapes: [P, L] each."""
    length = max(len(prompt) for prompt in prompts)
    ids = torch.zeros(len(prompts), length, dtype=torch.long)
    mask = torch.zeros(len(prompts), length, dtype=torch.long)
    for row, prompt in enumerate(prompts):
        ids[row, length - len(prompt) :] = torch.from_numpy(prompt)
        mask[row, length - len(prompt) :] = 1
    return ids, mask


def _positions(mask: Tensor) -> Tensor:
    return (mask.cumsum(dim=1) - 1).clamp_min(0)


def completion_hidden(model: LlamaForCausalLM, batch: PolicyBatch) -> Tensor:
    """Final hidden states from which each completion id is predicted. Shapes: [B, T, D].

    Each prompt runs through the model once, whatever the number of its completions; gradients reach it through
    all of them.
    """
    cache = DynamicCache(config=model.config)
    prompt_hidden: Tensor = model.model(
        input_ids=batch.prompt_ids,
        attention_mask=batch.prompt_mask,
        position_ids=_positions(batch.prompt_mask),
        cache=cache,
        use_cache=True,
    ).last_hidden_state
    first: Tensor = prompt_hidden[batch.row_prompt, -1:]
    ids, mask = batch.completion_ids[:, :-1, 0], batch.completion_mask[:, :-1, 0].long()
    if ids.shape[1] == 0:
        return first
    cache.batch_select_indices(batch.row_prompt)
    full_mask = torch.cat([batch.prompt_mask[batch.row_prompt], mask], dim=1)
    rest = model.model(
        input_ids=ids,
        attention_mask=full_mask,
        position_ids=_positions(full_mask)[:, -ids.shape[1] :],
        cache=cache,
        use_cache=True,
    ).last_hidden_state
    return torch.cat([first, rest], dim=1)


class IncrementalLlama:
    """A Llama's weights fused for drawing one id at a time, with a static key-value cache.

    Valid until the model's weights change: some are copied here, others shared. Rows share one position in the cache; prompts of unequal
    length are padded on the left and masked.
    """

    def __init__(self, model: LlamaForCausalLM, output_weight: Tensor) -> None:
        config = model.config
        self._model = model
        self._num_kv_heads: int = (
            model.model.layers[0].self_attn.k_proj.out_features // model.model.layers[0].self_attn.head_dim
        )
        self._head_dim: int = model.model.layers[0].self_attn.head_dim
        self._embedding = model.model.embed_tokens.weight.detach()
        self._eps = config.rms_norm_eps
        self._layers = [
            (
                layer.input_layernorm.weight.detach(),
                torch.cat(
                    [layer.self_attn.q_proj.weight, layer.self_attn.k_proj.weight, layer.self_attn.v_proj.weight]
                ).detach(),
                layer.self_attn.o_proj.weight.detach(),
                layer.post_attention_layernorm.weight.detach(),
                torch.cat([layer.mlp.gate_proj.weight, layer.mlp.up_proj.weight]).detach(),
                layer.mlp.down_proj.weight.detach(),
            )
            for layer in model.model.layers
        ]
        self._norm = model.model.norm.weight.detach()
        self._output = output_weight.detach()
        self._keys: list[Tensor] = []
        self._values: list[Tensor] = []
        self._bias = self._cos = self._sin = torch.empty(0)
        self._length = 0

    @torch.inference_mode()
    def prefill(self, prompts: Sequence[NDArray[np.int64]], row_prompt: Tensor, max_new: int) -> Tensor:
        device, dtype = self._embedding.device, self._embedding.dtype
        ids, mask = (tensor.to(device) for tensor in pad_prompts(prompts))
        cache = DynamicCache(config=self._model.config)
        hidden = self._model.model(
            input_ids=ids, attention_mask=mask, position_ids=_positions(mask), cache=cache, use_cache=True
        ).last_hidden_state[:, -1]
        self._length = ids.shape[1]
        total = self._length + max_new
        shape = (len(row_prompt), self._num_kv_heads, total, self._head_dim)
        self._keys, self._values = [], []
        layers: list[Any] = cache.layers  # each a dynamic layer with `keys` and `values`
        for layer in layers:
            for store, prefix in ((self._keys, layer.keys), (self._values, layer.values)):
                buffer = torch.zeros(shape, dtype=dtype, device=device)
                buffer[:, :, : self._length] = prefix[row_prompt]
                store.append(buffer)
        padding = (1 - mask).to(dtype) * torch.finfo(dtype).min
        self._bias = F.pad(padding, (0, max_new))[row_prompt][:, None, None]  # [B, 1, 1, total]
        # A row's position is its place in the cache less its padding.
        positions = torch.arange(total, device=device) - (1 - mask).sum(dim=1, keepdim=True)
        cos, sin = self._model.model.rotary_emb(hidden, positions.clamp_min(0))
        self._cos, self._sin = cos[row_prompt].to(dtype), sin[row_prompt].to(dtype)
        return F.linear(hidden, self._output)[row_prompt][:, None]

    @torch.inference_mode()
    def step(self, ids: Tensor) -> Tensor:
        at, rows = self._length, len(ids)
        cos, sin = self._cos[:, at, None], self._sin[:, at, None]  # [B, 1, d]
        bias = self._bias[..., : at + 1]
        hidden = F.embedding(ids[:, 0], self._embedding)
        width = (hidden.shape[1],)
        kv, scale = self._num_kv_heads, self._head_dim**-0.5
        for index, (norm_in, qkv, out, norm_mlp, gate_up, down) in enumerate(self._layers):
            heads = F.linear(F.rms_norm(hidden, width, norm_in, self._eps), qkv).view(rows, -1, self._head_dim)
            rotated = heads[:, :-kv] * cos + _rotate_half(heads[:, :-kv]) * sin
            keys, values = self._keys[index], self._values[index]
            keys[:, :, at] = rotated[:, -kv:]
            values[:, :, at] = heads[:, -kv:]
            # Query heads that share a key head stand as positions of one query: [B, kv, queries per key, d].
            query = rotated[:, :-kv].view(rows, kv, -1, self._head_dim)
            # Two small batched products: torch's fused attention takes three times as long for so few queries.
            scores = torch.matmul(query, keys[:, :, : at + 1].transpose(2, 3)) * scale + bias
            attended = torch.matmul(torch.softmax(scores, dim=-1), values[:, :, : at + 1])
            hidden = hidden + F.linear(attended.reshape(rows, -1), out)
            gate, up = F.linear(F.rms_norm(hidden, width, norm_mlp, self._eps), gate_up).chunk(2, dim=-1)
            hidden = hidden + F.linear(F.silu(gate) * up, down)
        self._length += 1
        return F.linear(F.rms_norm(hidden, width, self._norm, self._eps), self._output)[:, None]

    @torch.inference_mode()
    def keep(self, rows: Tensor) -> None:
        self._keys = [keys[rows] for keys in self._keys]
        self._values = [values[rows] for values in self._values]
        self._bias, self._cos, self._sin = self._bias[rows], self._cos[rows], self._sin[rows]


def _rotate_half(heads: Tensor) -> Tensor:
    first, second = heads.chunk(2, dim=-1)
    return torch.cat([-second, first], dim=-1)
