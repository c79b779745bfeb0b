"""Causal attention of packed segments behind shared prefixes, in blocks of queries. Knows no model and no batch.

Neither padding nor what a query may not see is computed, apart from the triangle of each block, and the scores exist for
one block at a time: the backward pass computes them again from the log-sum-exp, as in FlashAttention (arXiv:2205.14135).
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from elocution.grpo.tiles import refuse_second_derivative

__all__ = ["Segment", "block_attention"]

_BLOCK = 64  # positions; with their scores against a few hundred keys they fit a core's second-level cache


class Segment(NamedTuple):
    """Positions of a row, `place`, each of which sees all of `prefix`, and the segment up to itself."""

    place: slice
    prefix: slice


def block_attention(
    query: Tensor, key: Tensor, value: Tensor, segments: Sequence[Segment], *, scale: float | None = None
) -> Tensor:
    """`softmax(query key^T scale) value` of each position over what its segment lets it see.

    Shapes: `query` [H, N, d]; `key` and `value` [KV, N, d], H a multiple of KV; returns [H, N, d]. `segments` cover
    every position once; `scale` is d^-1/2 if None. Computed in the inputs' precision. No second derivatives.
    """
    attended: Tensor = _BlockAttention.apply(  # type: ignore[no-untyped-call]
        query, key, value, segments, query.shape[-1] ** -0.5 if scale is None else scale
    )
    return attended


class _BlockAttention(torch.autograd.Function):
    """With P = softmax(S), S = scale Q K^T and O = P V: dS = P (dO V^T - rowsum(dO O)).

    Heads that share a key stand beside each other, so that one product serves them. Shapes: queries [KV, N * H/KV, d].
    """

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, segments: Sequence[Segment], scale: float
    ) -> Tensor:
        groups = len(key)
        queries, keys, values = _by_position(query * scale, groups), key.contiguous(), value.contiguous()
        out, log_sum_exp = torch.empty_like(queries), queries.new_empty(*queries.shape[:2], 1)
        sharing = len(query) // groups
        for segment in segments:
            seen_keys, seen_values = _seen(keys, segment), _seen(values, segment)
            for rows, num_seen, hidden in _blocks(segment, sharing, query.device):
                scores = torch.bmm(queries[:, rows], seen_keys[:, :num_seen].transpose(1, 2))
                scores[..., num_seen - hidden.shape[1] :].masked_fill_(hidden, -torch.inf)
                top = scores.amax(dim=2, keepdim=True)
                total = scores.sub_(top).exp_().sum(dim=2, keepdim=True)
                out[:, rows] = torch.bmm(scores, seen_values[:, :num_seen]).div_(total)
                log_sum_exp[:, rows] = total.log_().add_(top)
        ctx.save_for_backward(queries, keys, values, out, log_sum_exp)
        ctx.segments, ctx.scale = segments, scale
        ctx.set_materialize_grads(False)  # zeros would carry on to weights that get no gradient
        return _by_head(out, len(query))

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor | None) -> tuple[Tensor | None, ...]:
        refuse_second_derivative("block_attention")
        if grad_out is None:
            return None, None, None, None, None
        queries, keys, values, out, log_sum_exp = ctx.saved_tensors
        grad_out_rows = _by_position(grad_out, len(keys))
        inner = torch.linalg.vecdot(grad_out_rows, out)[..., None]
        grad_queries = torch.empty_like(queries)
        grad_keys, grad_values = torch.zeros_like(keys), torch.zeros_like(values)
        sharing = len(grad_out) // len(keys)
        for segment in ctx.segments:
            seen_keys, seen_values = _seen(keys, segment), _seen(values, segment)
            seen_grad_keys, seen_grad_values = torch.zeros_like(seen_keys), torch.zeros_like(seen_values)
            for rows, num_seen, hidden in _blocks(segment, sharing, grad_out.device):
                block, grad_block = queries[:, rows], grad_out_rows[:, rows]
                scores = torch.bmm(block, seen_keys[:, :num_seen].transpose(1, 2))
                scores[..., num_seen - hidden.shape[1] :].masked_fill_(hidden, -torch.inf)
                shares = scores.sub_(log_sum_exp[:, rows]).exp_()
                seen_grad_values[:, :num_seen] += torch.bmm(shares.transpose(1, 2), grad_block)
                slopes = torch.bmm(grad_block, seen_values[:, :num_seen].transpose(1, 2))
                slopes.sub_(inner[:, rows]).mul_(shares)
                grad_queries[:, rows] = torch.bmm(slopes, seen_keys[:, :num_seen])
                seen_grad_keys[:, :num_seen] += torch.bmm(slopes.transpose(1, 2), block)
            for whole, part in ((grad_keys, seen_grad_keys), (grad_values, seen_grad_values)):
                prefix = segment.prefix.stop - segment.prefix.start
                whole[:, segment.prefix] += part[:, :prefix]
                whole[:, segment.place] += part[:, prefix:]
        return _by_head(grad_queries.mul_(ctx.scale), len(grad_out)), grad_keys, grad_values, None, None


def _by_position(heads: Tensor, groups: int) -> Tensor:
    """Shapes: [H, N, d] -> [groups, N * H/groups, d], the heads of a group side by side at each position."""
    length, width = heads.shape[1:]
    return heads.view(groups, -1, length, width).transpose(1, 2).reshape(groups, -1, width)


def _by_head(rows: Tensor, num_heads: int) -> Tensor:
    """What `_by_position` undoes. Shapes: [groups, N * H/groups, d] -> [H, N, d]."""
    groups, _, width = rows.shape
    return rows.view(groups, -1, num_heads // groups, width).transpose(1, 2).reshape(num_heads, -1, width)


def _seen(keys: Tensor, segment: Segment) -> Tensor:
    """What the last position of a segment sees. Shapes: [KV, N, d] -> [KV, prefix + segment, d]."""
    return torch.cat([keys[:, segment.prefix], keys[:, segment.place]], dim=1)


def _blocks(segment: Segment, sharing: int, device: torch.device) -> Iterator[tuple[slice, int, Tensor]]:
    """For each block of queries: its rows, how many keys are seen, and which of the last of them are not, row by row."""
    prefix = segment.prefix.stop - segment.prefix.start
    for start in range(segment.place.start, segment.place.stop, _BLOCK):
        stop = min(start + _BLOCK, segment.place.stop)
        own = torch.arange(stop - start, device=device)
        hidden = (own[:, None] < own).repeat_interleave(sharing, dim=0)
        yield slice(start * sharing, stop * sharing), prefix + stop - segment.place.start, hidden
