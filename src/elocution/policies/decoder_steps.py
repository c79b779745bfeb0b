"""A decoder's weights and cache arranged for drawing one position at a time with as few operations as can be.

Works on transformers' own Llama, Qwen2 or Qwen3, which reads the prompts; the steps after are done here. Qwen2 is a Llama
whose queries, keys and values have a bias, Qwen3 one whose query and key heads are normed.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import DynamicCache, LlamaModel, Qwen2Model, Qwen3Model

from elocution.policies.lora import merged_weight
from elocution.policies.padding import pad_prompts, positions_of

__all__ = ["DecoderSteps"]


class DecoderSteps:
    """Final hidden states of one position after the other, with a static key-value cache.

    Valid until the decoder's weights change: some are copied here, others shared, adapters folded in. `embed` makes
    [..., D] of ids [..., C]. Rows share one position in the cache; prompts of unequal length are padded on the left and masked.
    Products and cache are in `dtype`, as under autocast; the residual stream keeps the weights' precision.
    """

    def __init__(
        self, decoder: LlamaModel | Qwen2Model | Qwen3Model, embed: Callable[[Tensor], Tensor], dtype: torch.dtype
    ) -> None:
        layers: Any = decoder.layers  # the three families name their parts alike
        attention = layers[0].self_attn
        self._decoder = decoder
        self._embed = embed
        self._head_dim: int = attention.head_dim
        self._num_kv_heads: int = attention.k_proj.out_features // attention.head_dim
        self._eps = decoder.config.rms_norm_eps
        self._dtype = dtype
        self._layers = [
            (
                layer.input_layernorm.weight.detach(),
                _stacked(layer.self_attn.q_proj, layer.self_attn.k_proj, layer.self_attn.v_proj).to(dtype),
                _stacked_bias(layer.self_attn.q_proj, layer.self_attn.k_proj, layer.self_attn.v_proj, dtype=dtype),
                self._head_norms(layer.self_attn) if isinstance(decoder, Qwen3Model) else None,
                merged_weight(layer.self_attn.o_proj).T.to(dtype),
                layer.post_attention_layernorm.weight.detach(),
                _stacked(layer.mlp.gate_proj, layer.mlp.up_proj).to(dtype),
                merged_weight(layer.mlp.down_proj).T.to(dtype),
            )
            for layer in layers
        ]
        self._norm: Tensor = decoder.norm.weight.detach()
        self._cache: list[Tensor] = []  # by layer [2, B, kv, total, d]: keys, values
        # Views of the cache by layer: keys [B * kv, d, total], values [B * kv, total, d].
        self._views: list[tuple[Tensor, Tensor]] = []
        self._bias = self._cos = self._sin = self._padding = torch.empty(0, device="cpu")
        self._length = 0

    @torch.inference_mode()
    def prefill(self, prompts: Sequence[NDArray[np.int64]], row_prompt: Tensor, max_new: int) -> Tensor:
        """As `IncrementalModel.prefill`, but the hidden states [B, D]. Shapes: `prompts` [L] or [L, C] each."""
        device, dtype = self._norm.device, self._dtype
        ids, mask = (tensor.to(device) for tensor in pad_prompts(prompts))
        row_prompt = row_prompt.to(device)
        cache = DynamicCache(config=self._decoder.config)
        with torch.autocast(device.type, dtype, enabled=dtype != self._norm.dtype):
            hidden: Tensor = self._decoder(
                inputs_embeds=self._embed(ids if ids.ndim == 3 else ids[..., None]),
                attention_mask=mask,
                position_ids=positions_of(mask),
                cache=cache,
                use_cache=True,
            ).last_hidden_state[:, -1]
        self._length = ids.shape[1]
        total = self._length + max_new
        layers: list[Any] = cache.layers  # each a dynamic layer with `keys` and `values`
        self._cache = []
        for layer in layers:
            buffer = torch.zeros(
                2, len(row_prompt), self._num_kv_heads, total, self._head_dim, dtype=dtype, device=device
            )
            buffer[0, :, :, : self._length] = layer.keys[row_prompt]
            buffer[1, :, :, : self._length] = layer.values[row_prompt]
            self._cache.append(buffer)
        padding = (1 - mask).to(dtype) * torch.finfo(dtype).min
        self._bias = F.pad(padding, (0, max_new))[row_prompt]
        # A row's position is its place in the cache less its padding.
        self._padding = (1 - mask).sum(dim=1)[row_prompt]
        cos, sin = self._decoder.rotary_emb(hidden, torch.arange(total, device=device)[None])
        self._cos, self._sin = cos[0].to(hidden.dtype), sin[0].to(hidden.dtype)
        # The first half is negated here, once, and not in each layer of each step.
        self._sin[:, : self._head_dim // 2] *= -1
        self._look()
        return hidden[row_prompt]

    @torch.inference_mode()
    def step(self, ids: Tensor) -> Tensor:
        """Appends `ids` [B, C] and returns the hidden states [B, D] behind them."""
        at, rows = self._length, len(ids)
        kv, head_dim, half = self._num_kv_heads, self._head_dim, self._head_dim // 2
        position = at - self._padding
        cos, sin = self._cos[position, None], self._sin[position, None]  # [B, 1, d]
        bias = self._bias[:, None, : at + 1].repeat_interleave(kv, dim=0)  # [B * kv, 1, at + 1]
        hidden = self._embed(ids.to(self._norm.device))
        width = (hidden.shape[1],)
        for (norm_in, qkv, bias_qkv, norm_qk, out, norm_mlp, gate_up, down), cache, (keys, values) in zip(
            self._layers, self._cache, self._views, strict=True
        ):
            normed = F.rms_norm(hidden, width, norm_in, self._eps).to(self._dtype)
            heads = F.linear(normed, qkv, bias_qkv).view(rows, -1, head_dim)
            turned = heads[:, :-kv]
            if norm_qk is not None:
                turned = F.rms_norm(turned, (head_dim,), eps=self._eps) * norm_qk
            turned = torch.addcmul(turned * cos, turned.roll(half, dims=-1), sin).to(self._dtype)
            cache[0, :rows, :, at] = turned[:, -kv:]
            cache[1, :rows, :, at] = heads[:, -kv:]
            # Query heads that share a key head stand as positions of one query: [B * kv, queries per key, d].
            query = turned[:, :-kv].reshape(rows * kv, -1, head_dim)
            # Two small batched products: torch's fused attention takes three times as long for so few queries.
            scores = torch.baddbmm(bias, query, keys[:, :, : at + 1], alpha=head_dim**-0.5)
            attended = torch.bmm(torch.softmax(scores, dim=-1), values[:, : at + 1])
            _add_product(hidden, attended.view(rows, -1), out)
            # Features by rows: the wide product is a fifth faster this way round on CPU, and its halves are contiguous.
            normed = F.rms_norm(hidden, width, norm_mlp, self._eps).to(self._dtype)
            gate, up = torch.mm(gate_up, normed.T).chunk(2)
            _add_product(hidden, F.silu(gate).mul_(up).T, down)
        self._length += 1
        return F.rms_norm(hidden, width, self._norm, self._eps)

    @torch.inference_mode()
    def keep(self, rows: Tensor) -> None:
        """As `IncrementalModel.keep`."""
        rows = rows.to(self._norm.device)
        places = torch.arange(len(rows), device=rows.device)
        moved = torch.nonzero(rows != places)[:, 0]
        if len(moved):
            sources = rows[moved]
            for cache in self._cache:
                cache[:, moved, :, : self._length] = cache[:, sources, :, : self._length]
            for state in (self._bias, self._padding):
                state[moved] = state[sources]
        self._bias, self._padding = self._bias[: len(rows)], self._padding[: len(rows)]
        self._look()

    def _look(self) -> None:
        rows = len(self._padding)
        self._views = []
        for cache in self._cache:
            keys, values = (part[:rows].flatten(0, 1) for part in cache)
            self._views.append((keys.transpose(1, 2), values))

    def _head_norms(self, attention: Any) -> Tensor:
        """Weights of the norms of query heads, then key heads. Shapes: [heads + kv, d]."""
        heads = attention.q_proj.out_features // self._head_dim
        norms: Tensor = torch.stack(
            [attention.q_norm.weight.detach()] * heads + [attention.k_norm.weight.detach()] * self._num_kv_heads
        )
        return norms


def _add_product(hidden: Tensor, features: Tensor, weight: Tensor) -> None:
    """`hidden += features weight`, in one operation where the types agree."""
    if hidden.dtype == weight.dtype:
        hidden.addmm_(features, weight)
    else:
        hidden.add_(torch.mm(features, weight))


def _stacked(*layers: nn.Module) -> Tensor:
    """The weights of layers that read the same input as those of one. Shapes: [sum of out, in]."""
    return torch.cat([merged_weight(layer) for layer in layers])


def _stacked_bias(*layers: Any, dtype: torch.dtype) -> Tensor | None:
    """The biases of such layers, [sum of out]; None where they have none."""
    biases = [layer.bias for layer in layers]
    return None if biases[0] is None else torch.cat([bias.detach() for bias in biases]).to(dtype)
