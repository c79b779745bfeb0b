"""KL(policy || reference) over all legal ids, without the logits of either for the whole batch in memory."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from elocution.grpo.tiles import (
    TILE,
    Columns,
    TiledLayer,
    Walk,
    merge_softmax,
    product,
    refuse_second_derivative,
    softmax_parts,
)

__all__ = ["exact_kl"]


def exact_kl(
    hidden: Tensor,
    weight: Tensor,
    ref_hidden: Tensor,
    ref_weight: Tensor,
    *,
    temperature: float,
    legal_ids: Tensor | None = None,
    bias: Tensor | None = None,
    ref_bias: Tensor | None = None,
    tile: tuple[int, int] = TILE,
) -> Tensor:
    """`sum_j p_j (log p_j - log q_j)`, p the policy's distribution and q the reference's at the same temperature.

    Shapes: `hidden` [N, D], `weight` [V, D] and `bias` [V] of the policy; `ref_…` of the reference, whose widths may
    differ; `legal_ids` [K], the different rows of both matrices that may be drawn, all if None; returns [N], nats. Logits
    exist for one `tile` of cells and legal ids of each, in the backward pass too. Computed in fp32, or fp64 if an input
    is, under autocast as well. Never negative but for rounding, and exactly 0 where both have the same logits. An id that
    the policy cannot draw adds nothing. The reference is a constant: no gradient reaches it. No second derivatives.

    Raises: ValueError if shapes disagree, an id has no row, or `temperature` or a side of `tile` is not positive.
    """
    policy, reference = (hidden, weight, bias), (ref_hidden, ref_weight, ref_bias)
    walk = Walk.over(policy, reference, legal_ids=legal_ids, temperature=temperature, tile=tile)
    with torch.autocast(hidden.device.type, enabled=False):
        found: Tensor = _ExactKl.apply(*policy, *reference, walk)  # type: ignore[no-untyped-call]
    return found


class _ExactKl(torch.autograd.Function):
    """With p = softmax(z), z = (h W^T + b) / T: dKL / dz_j = p_j (log p_j - log q_j - KL)."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        ref_hidden: Tensor,
        ref_weight: Tensor,
        ref_bias: Tensor | None,
        walk: Walk,
    ) -> Tensor:
        layers = TiledLayer(hidden, weight, bias, walk), TiledLayer(ref_hidden, ref_weight, ref_bias, walk)
        tops, totals = hidden.new_empty(2, 2, len(walk.columns), len(hidden), dtype=walk.dtype)
        terms = torch.empty_like(tops[0])
        for index, columns in enumerate(walk.columns):
            tiles = [layer.tile(columns) for layer in layers]
            for rows in layers[0].rows():
                tops[0, index, rows], shifted, exps = softmax_parts(tiles[0].logits(layers[0].cooled(rows)))
                tops[1, index, rows], ref_shifted, ref_exps = softmax_parts(tiles[1].logits(layers[1].cooled(rows)))
                totals[0, index, rows], totals[1, index, rows] = exps.sum(dim=1), ref_exps.sum(dim=1)
                terms[index, rows] = product(exps, shifted.sub_(ref_shifted)).sum(dim=1)
        softmax, reference = (merge_softmax(*each) for each in zip(tops, totals, strict=True))
        mean = (softmax.shares * (terms + totals[0] * (softmax.gaps - reference.gaps))).sum(dim=0)
        kl: Tensor = mean - (softmax.log_total - reference.log_total)
        ctx.walk = walk
        ctx.save_for_backward(
            *(hidden, weight, bias, ref_hidden, ref_weight, ref_bias),
            *(softmax.log_sum_exp, reference.log_sum_exp, kl),
        )
        return kl

    @staticmethod
    def backward(ctx: Any, grad_kl: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivative("exact_kl")
        hidden, weight, bias, ref_hidden, ref_weight, ref_bias, log_sum_exp, ref_log_sum_exp, kl = ctx.saved_tensors
        reference = TiledLayer(ref_hidden, ref_weight, ref_bias, ctx.walk)

        def slopes(columns: Columns) -> Callable[[slice, Tensor], Tensor]:
            tile = reference.tile(columns)

            def slope(rows: slice, logits: Tensor) -> Tensor:
                logprobs = logits.sub_(log_sum_exp[rows, None])
                ref_logprobs = tile.logits(reference.cooled(rows)).sub_(ref_log_sum_exp[rows, None])
                probabilities = logprobs.exp()
                difference = logprobs.sub_(ref_logprobs).sub_(kl[rows, None])
                return product(probabilities, difference).mul_(grad_kl[rows, None])

            return slope

        layer = TiledLayer(hidden, weight, bias, ctx.walk)
        return (*layer.gradients(ctx.needs_input_grad[:3], slopes), *[None] * 4)
