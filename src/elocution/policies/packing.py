"""Prompts and completions in one row without padding, each prompt once, for any decoder that transformers can run.

A registered attention function lets each completion see its prompt and itself, so a model keeps its class and its
forward, and the gradient is that of the plain padded computation. On a CPU in full precision nothing is padded; elsewhere
attention alone is: the row is unpacked for torch's own kernels and packed again.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from elocution.policies.base import PolicyBatch
from elocution.policies.block_attention import Segment, block_attention
from elocution.policies.padding import completion_lengths
from elocution.policies.states import CellStates

__all__ = ["PackedLayout", "enable_packing", "packed_hidden", "packed_states", "padded_attention"]

_NAME = "elocution_packed"
# A mask of four dimensions is handed through by transformers; the layout brings the real ones.
_NO_MASK = torch.empty(1, 1, 0, 0, device="cpu")


@dataclass(frozen=True)
class PackedLayout:
    """Where each position of a `PolicyBatch` lies in a packed row of N positions: the prompts, then the completions.

    A completion's last id is predicted and never read, so it has no position. Shapes: `positions` [N], counted from
    the start of the prompt; `prompt_index` [P, L] and `completion_index` [B, T - 1], places in the row, any place where
    there is padding; `prompt_valid`, `completion_valid` of the same shapes; `key_index` [B, L + T - 1], what a completion
    may see, and `key_mask` [B, 1, T - 1, L + T - 1]; `predicts` [B, T], the place from which a cell is
    predicted; T is the longest completion's length, however wide the grid. `segments` are the prompts and completions.
    """

    positions: Tensor
    prompt_index: Tensor
    prompt_valid: Tensor
    completion_index: Tensor
    completion_valid: Tensor
    key_index: Tensor
    key_mask: Tensor
    predicts: Tensor
    segments: tuple[Segment, ...]

    @classmethod
    def of(cls, batch: PolicyBatch) -> "PackedLayout":
        """Lays out `batch`, whose prompts may be padded on either side."""
        prompt_lengths = batch.prompt_mask.sum(dim=1)
        lengths = completion_lengths(batch.completion_mask)
        prompt_index, prompt_valid = _places(prompt_lengths, 0)
        completion_index, completion_valid = _places((lengths - 1).clamp_min(0), int(prompt_lengths.sum()))
        row_lengths = prompt_lengths[batch.row_prompt]
        steps = torch.arange(completion_index.shape[1], device=lengths.device)
        visible = torch.cat(
            [
                prompt_valid[batch.row_prompt][:, None, :].expand(-1, len(steps), -1),
                (steps[:, None] >= steps).expand(len(lengths), -1, -1),
            ],
            dim=2,
        )
        last = prompt_index[torch.arange(len(prompt_lengths), device=lengths.device), prompt_lengths - 1]
        return cls(
            positions=torch.cat(
                [
                    torch.arange(prompt_index.shape[1], device=lengths.device).expand_as(prompt_index)[prompt_valid],
                    (row_lengths[:, None] + steps)[completion_valid],
                ]
            ),
            prompt_index=prompt_index,
            prompt_valid=prompt_valid,
            completion_index=completion_index,
            completion_valid=completion_valid,
            key_index=torch.cat([prompt_index[batch.row_prompt], completion_index], dim=1),
            key_mask=visible[:, None],
            predicts=torch.cat([last[batch.row_prompt][:, None], completion_index], dim=1),
            segments=_segments(prompt_lengths, (lengths - 1).clamp_min(0), batch.row_prompt),
        )

    def pack(self, batch: PolicyBatch) -> Tensor:
        """The ids that the model reads, in the order of the row. Shapes: [N] of channel 0, or [N, C] where prompts have all."""
        read = batch.completion_ids[:, : self.completion_valid.shape[1]][self.completion_valid]
        prompts = batch.prompt_ids[batch.prompt_mask.bool()]
        return torch.cat([prompts, read[:, 0] if prompts.ndim == 1 else read])


def enable_packing(model: PreTrainedModel) -> None:
    """Makes `model` take `packed=PackedLayout` in its forward; without it, attention is torch's as before."""
    model.set_attn_implementation(_NAME)


def packed_hidden(
    model: PreTrainedModel, batch: PolicyBatch, embed: Callable[[Tensor], Tensor] | None = None
) -> Tensor:
    """Final hidden states from which the completion positions with an unmasked cell are predicted, in order. Shapes: [M, D].

    `model` is a decoder without a head, made ready by `enable_packing`; `embed` makes [..., D] of the ids that it reads,
    its own embedding if None.
    """
    layout = PackedLayout.of(batch)
    ids = layout.pack(batch)[None]
    hidden: Tensor = model(
        input_ids=ids if embed is None else None,
        inputs_embeds=None if embed is None else embed(ids),
        position_ids=layout.positions[None],
        attention_mask=_NO_MASK.to(batch.prompt_ids.device),
        use_cache=False,
        packed=layout,
    ).last_hidden_state[0]
    return hidden[layout.predicts[batch.completion_mask.any(dim=-1)[:, : layout.predicts.shape[1]]]]


def packed_states(
    model: PreTrainedModel,
    batch: PolicyBatch,
    weight: Tensor,
    legal_ids: Tensor | None,
    bias: Tensor | None = None,
) -> CellStates:
    """The hidden states of a batch of one channel, beside the output layer, `weight` [V, D] and `bias` [V], and its legal
    rows [K].

    `model` is as in `packed_hidden`; all rows are legal if `legal_ids` is None.
    """
    ids = batch.completion_ids[batch.completion_mask]
    return CellStates(packed_hidden(model, batch), weight, legal_ids, ids, batch.completion_mask, bias)


def _places(lengths: Tensor, start: int) -> tuple[Tensor, Tensor]:
    """Places of rows of `lengths` laid end to end from `start`, and which are real. Shapes: [R] -> [R, max] each."""
    steps = torch.arange(int(lengths.max()), device=lengths.device)
    valid = steps < lengths[:, None]
    offsets = start + lengths.cumsum(0) - lengths
    return torch.where(valid, offsets[:, None] + steps, torch.zeros_like(steps)), valid


def _segments(prompt_lengths: Tensor, completion_lengths: Tensor, row_prompt: Tensor) -> tuple[Segment, ...]:
    """Prompts behind nothing and completions behind their prompts, laid end to end. Shapes: [P], [B], [B]."""
    stops = list(accumulate([*prompt_lengths.tolist(), *completion_lengths.tolist()]))
    places = [slice(start, stop) for start, stop in pairwise([0, *stops])]
    prompts, completions = places[: len(prompt_lengths)], places[len(prompt_lengths) :]
    return tuple(
        [Segment(place, slice(0, 0)) for place in prompts]
        + [Segment(place, prompts[row]) for place, row in zip(completions, row_prompt.tolist(), strict=True)]
    )


def _attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    packed: PackedLayout | None = None,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """Shapes: `query` [1, H, N, d]; `key`, `value` [1, KV, N, d]; returns [1, N, H, d]."""
    if packed is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **kwargs)
    if query.device.type == "cpu" and query.dtype == key.dtype == value.dtype in (torch.float32, torch.float64):
        own = block_attention(query[0], key[0], value[0], packed.segments, scale=scaling)
        return own.transpose(0, 1)[None], None
    return padded_attention(query, key, value, packed, scaling), None


def padded_attention(query: Tensor, key: Tensor, value: Tensor, packed: PackedLayout, scaling: float | None) -> Tensor:
    """Attention of a packed row by torch's own kernels, for devices and precisions that `block_attention` is not for.

    Shapes: `query` [1, H, N, d]; `key`, `value` [1, KV, N, d]; returns [1, N, H, d]. `scaling` is d^-1/2 if None.
    """
    q, k, v = (heads[0].transpose(0, 1) for heads in (query, key, value))  # [N, heads, d]
    sharing = q.shape[1] // k.shape[1]
    k, v = (heads.repeat_interleave(sharing, dim=1) if sharing > 1 else heads for heads in (k, v))

    def unpacked(heads: Tensor, index: Tensor) -> Tensor:
        return heads[index].transpose(1, 2)  # [rows, H, length, d]

    # Prompts are padded on the right here, so that being causal is mask enough.
    prompts = F.scaled_dot_product_attention(
        unpacked(q, packed.prompt_index),
        unpacked(k, packed.prompt_index),
        unpacked(v, packed.prompt_index),
        is_causal=True,
        scale=scaling,
    )
    parts = [prompts.transpose(1, 2)[packed.prompt_valid]]
    if packed.completion_index.shape[1]:
        completions = F.scaled_dot_product_attention(
            unpacked(q, packed.completion_index),
            unpacked(k, packed.key_index),
            unpacked(v, packed.key_index),
            attn_mask=packed.key_mask,
            scale=scaling,
        )
        parts.append(completions.transpose(1, 2)[packed.completion_valid])
    return torch.cat(parts)[None]


AttentionInterface.register(_NAME, _attention)
AttentionMaskInterface.register(_NAME, sdpa_mask)
