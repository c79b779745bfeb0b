"""A decoder's weights and cache arranged for drawing one position at a time with as few operations as can be.

Works on transformers' own Llama, Qwen2 or Qwen3. Qwen2 is a Llama whose queries, keys and values have a bias, Qwen3 one whose
query and key heads are normed.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from transformers import LlamaModel, Qwen2Model, Qwen3Model

from elocution.policies.compiled_kernels import LANES, CompiledKernels, can_compile
from elocution.policies.lora import merged_weight
from elocution.policies.step_kernels import StepKernels, TorchKernels, turn

__all__ = ["DecoderSteps"]

_MOST_THREADS = 2


class DecoderSteps:
    """Final hidden states of one position after the other, with a static key-value cache.

    Valid until the decoder's weights change: some are copied here, others shared, adapters folded in. `embed` makes
    [..., D] of ids [..., C]. Each row has its own length, so that rows may join while others are under way.
    Products and cache are in `dtype`, as under autocast; the residual stream keeps the weights' precision.
    """

    def __init__(
        self,
        decoder: LlamaModel | Qwen2Model | Qwen3Model,
        embed: Callable[[Tensor], Tensor],
        dtype: torch.dtype,
        *,
        compiled: bool,
    ) -> None:
        """`compiled` uses kernels made for this CPU, where that is possible."""
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
        self._kernels = self._choose_kernels(attention.q_proj.out_features // self._head_dim, compiled=compiled)
        # By layer: keys [rows, kv, d, positions], values [rows, kv, positions, d].
        self._cache: list[tuple[Tensor, Tensor]] = []
        self._cos = self._sin = torch.empty(0, device="cpu")  # [positions, d]
        self._lengths = torch.empty(0, dtype=torch.long, device="cpu")  # [B], positions that each row holds

    @torch.inference_mode()
    def start(self, rows: int, positions: int) -> None:
        """As `IncrementalModel.start`."""
        device = self._norm.device
        self._cache = []  # frees the old one before there is another
        positions = -(-positions // LANES) * LANES
        sizes = (rows, self._num_kv_heads)
        # Zeros, for what lies beyond a row's length is multiplied by 0, and must be finite.
        self._cache = [
            (
                torch.zeros(*sizes, self._head_dim, positions, dtype=self._dtype, device=device),
                torch.zeros(*sizes, positions, self._head_dim, dtype=self._dtype, device=device),
            )
            for _ in self._layers
        ]
        cos, sin = self._decoder.rotary_emb(self._norm, torch.arange(positions, device=device)[None])
        self._cos, self._sin = cos[0].to(self._norm.dtype), sin[0].to(self._norm.dtype)
        # The first half is negated here, once, and not in each layer of each step.
        self._sin[:, : self._head_dim // 2] *= -1
        self._lengths = torch.empty(0, dtype=torch.long, device=device)

    @torch.inference_mode()
    def join(self, prompts: Sequence[NDArray[np.int64]], row_prompt: Tensor) -> Tensor:
        """As `IncrementalModel.join`, but the hidden states [B', D]. Shapes: `prompts` [L] or [L, C] each."""
        device, row_prompt = self._norm.device, row_prompt.to(self._norm.device)
        # Padded behind its end, a prompt sees none of its padding.
        ids = pad_sequence([torch.from_numpy(prompt) for prompt in prompts], batch_first=True).to(device)
        ends = torch.tensor([len(prompt) for prompt in prompts], device=device)
        new = slice(len(self._lengths), len(self._lengths) + len(row_prompt))

        def attend(heads: Tensor, keys: Tensor, values: Tensor) -> Tensor:
            return self._attend_prompts(heads.unflatten(0, ids.shape[:2]), row_prompt, keys[new], values[new])

        hidden = self._embed(ids if ids.ndim == 3 else ids[..., None]).flatten(0, 1)
        states = self._through_layers(hidden, attend)
        self._lengths = torch.cat([self._lengths, ends[row_prompt]])
        last = torch.arange(len(prompts), device=device) * ids.shape[1] + ends - 1
        return states[last[row_prompt]]

    @torch.inference_mode()
    def step(self, ids: Tensor) -> Tensor:
        """Appends `ids` [B, C] and returns the hidden states [B, D] behind them."""
        self._kernels.begin(self._lengths, self._cos, self._sin)
        hidden = self._through_layers(self._embed(ids.to(self._norm.device)), self._kernels.attend)
        self._lengths = self._lengths + 1
        return hidden

    def _through_layers(self, hidden: Tensor, attend: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Tensor:
        """The final hidden states of positions [N, D], which are overwritten; `attend` is as that of `StepKernels`."""
        kv, norm = self._num_kv_heads, self._kernels.norm
        for (norm_in, qkv, bias_qkv, norm_qk, out, norm_mlp, gate_up, down), (keys, values) in zip(
            self._layers, self._cache, strict=True
        ):
            normed = norm(hidden, norm_in).to(self._dtype)
            heads = F.linear(normed, qkv, bias_qkv).view(len(hidden), -1, self._head_dim)
            if norm_qk is not None:
                turned = F.rms_norm(heads[:, :-kv], (self._head_dim,), eps=self._eps) * norm_qk
                heads = torch.cat([turned, heads[:, -kv:]], dim=1)
            _add_product(hidden, attend(heads, keys, values), out)
            # Features by rows: the wide product is a fifth faster this way round on CPU, and its halves are contiguous.
            gate, up = torch.mm(gate_up, norm(hidden, norm_mlp).to(self._dtype).T).chunk(2)
            _add_product(hidden, F.silu(gate).mul_(up).T, down)
        return norm(hidden, self._norm)

    def _attend_prompts(self, heads: Tensor, row_prompt: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """What all positions of the prompts find up to themselves; the rows' caches get their keys and values.

        Shapes: `heads` [P, L, queries + 2 kv, d]; `keys` [B', kv, d, size], `values` [B', kv, size, d] -> [P * L, queries * d].
        """
        kv, length = self._num_kv_heads, heads.shape[1]
        turned = turn(heads[:, :, :-kv], self._cos[:length, None], self._sin[:length, None]).to(self._dtype)
        queries, own_keys = turned[:, :, :-kv].transpose(1, 2), turned[:, :, -kv:].transpose(1, 2)
        own_values = heads[:, :, -kv:].to(self._dtype).transpose(1, 2)
        keys[..., :length] = own_keys[row_prompt].transpose(2, 3)
        values[:, :, :length] = own_values[row_prompt]
        found = F.scaled_dot_product_attention(queries, own_keys, own_values, is_causal=True, enable_gqa=True)
        return found.transpose(1, 2).flatten(2).flatten(0, 1)

    @torch.inference_mode()
    def keep(self, rows: Tensor) -> None:
        """As `IncrementalModel.keep`."""
        rows = rows.to(self._norm.device)
        moved = torch.nonzero(rows != torch.arange(len(rows), device=rows.device))[:, 0]
        if len(moved):
            sources = rows[moved]
            longest = int(self._lengths[sources].max())
            for keys, values in self._cache:
                keys[moved, :, :, :longest] = keys[sources, :, :, :longest]
                values[moved, :, :longest] = values[sources, :, :longest]
        self._lengths = self._lengths[rows]

    def _choose_kernels(self, heads: int, *, compiled: bool) -> StepKernels:
        """Compiled ones for fp32 on a CPU whose products have few threads, for they have one; else those of torch."""
        sizes = (self._num_kv_heads, heads, self._head_dim, self._eps)
        is_fp32_on_cpu = self._norm.device.type == "cpu" and self._dtype == self._norm.dtype == torch.float32
        has_few_threads = torch.get_num_threads() <= _MOST_THREADS
        if compiled and is_fp32_on_cpu and has_few_threads and can_compile(*sizes):
            return CompiledKernels(*sizes)
        return TorchKernels(self._num_kv_heads, self._eps)

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
