"""Log-probs of chosen ids over the legal ids only, without the logits of the whole batch in memory."""

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

__all__ = ["selected_logprobs"]


def selected_logprobs(
    hidden: Tensor,
    weight: Tensor,
    target_index: Tensor,
    *,
    temperature: float,
    legal_ids: Tensor | None = None,
    bias: Tensor | None = None,
    entropy_grad: bool = False,
    tile: tuple[int, int] = TILE,
) -> tuple[Tensor, Tensor]:
    """`log softmax((hidden weight^T + bias) / temperature)` at `target_index`, and that distribution's entropy.

    Shapes: `hidden` [N, D]; `weight` [V, D] and `bias` [V], the output layer; `legal_ids` [K], the different rows of it
    that may be drawn, all if None; `target_index` [N], places in `legal_ids`; returns [N] and [N], nats. Logits exist for
    one `tile` of cells and legal ids, in the backward pass too, which computes them again. Computed in fp32, or fp64 if an
    input is, under autocast as well. The entropy carries a gradient if `entropy_grad`. A legal id of probability 0 (a bias
    of -inf) adds nothing to either. No second derivatives.

    Raises: ValueError if shapes disagree, an index is out of range, or `temperature` or a side of `tile` is not positive.
    """
    walk = Walk.over((hidden, weight, bias), legal_ids=legal_ids, temperature=temperature, tile=tile)
    if target_index.shape != hidden.shape[:1]:
        raise ValueError(
            f"expected target_index [N], one for each of {len(hidden)} rows, got {tuple(target_index.shape)}"
        )
    if len(hidden) and not 0 <= int(target_index.min()) <= int(target_index.max()) < walk.num_legal:
        raise ValueError(f"target_index must lie in [0, {walk.num_legal}), the places of the legal ids")
    with torch.autocast(hidden.device.type, enabled=False):
        found: tuple[Tensor, Tensor] = _LinearLogprobs.apply(  # type: ignore[no-untyped-call]
            hidden, weight, bias, target_index, walk, entropy_grad
        )
    return found


class _LinearLogprobs(torch.autograd.Function):
    """With p = softmax(z), z = (h W^T + b) / T: d logprob_k / dz_j = [j = k] - p_j and dH / dz_j = -p_j (log p_j + H)."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        target_index: Tensor,
        walk: Walk,
        entropy_grad: bool,
    ) -> tuple[Tensor, Tensor]:
        layer = TiledLayer(hidden, weight, bias, walk)
        tops, totals, terms = hidden.new_empty(3, len(walk.columns), len(hidden), dtype=walk.dtype)
        chosen = hidden.new_empty(len(hidden), dtype=walk.dtype)
        for index, columns in enumerate(walk.columns):
            tile = layer.tile(columns)
            for rows in layer.rows():
                logits = tile.logits(layer.cooled(rows))
                place, is_here = columns.find(target_index[rows])
                chosen[rows] = torch.where(is_here, logits.gather(1, place[:, None])[:, 0], chosen[rows])
                tops[index, rows], shifted, exps = softmax_parts(logits)
                totals[index, rows] = exps.sum(dim=1)
                terms[index, rows] = product(exps, shifted).sum(dim=1)
        softmax = merge_softmax(tops, totals)
        entropy = softmax.log_total - (softmax.shares * (terms + totals * softmax.gaps)).sum(dim=0)
        ctx.save_for_backward(hidden, weight, bias, target_index, softmax.log_sum_exp, entropy)
        ctx.walk, ctx.entropy_grad = walk, entropy_grad
        if not entropy_grad:
            ctx.mark_non_differentiable(entropy)
        return chosen - softmax.log_sum_exp, entropy

    @staticmethod
    def backward(ctx: Any, grad_selected: Tensor, grad_entropy: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivative("selected_logprobs")
        hidden, weight, bias, target_index, log_sum_exp, entropy = ctx.saved_tensors

        def slopes(columns: Columns) -> Callable[[slice, Tensor], Tensor]:
            def slope(rows: slice, logits: Tensor) -> Tensor:
                logprobs = logits.sub_(log_sum_exp[rows, None])
                along = grad_selected[rows, None]
                grad = logprobs.exp()
                if ctx.entropy_grad:
                    push = product(grad, logprobs.add_(entropy[rows, None])).mul_(grad_entropy[rows, None])
                    grad.mul_(-along).sub_(push)
                else:
                    grad.mul_(-along)
                place, is_here = columns.find(target_index[rows])
                return grad.scatter_add_(
                    1, place[:, None], torch.where(is_here[:, None], along, torch.zeros_like(along))
                )

            return slope

        layer = TiledLayer(hidden, weight, bias, ctx.walk)
        return (*layer.gradients(ctx.needs_input_grad[:3], slopes), None, None, None)
