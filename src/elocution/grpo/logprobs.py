"""Log-probs of chosen ids over the legal ids only, without the logits of the whole batch in memory."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

__all__ = ["selected_logprobs"]

_CHUNK_CELLS = 1 << 24  # logits alive at once, unless a chunk size is given: 64 MiB in fp32
_WEIGHT_ROWS = 8192  # of a weight in less than fp32, converted at once


def selected_logprobs(
    hidden: Tensor,
    weight: Tensor,
    target_index: Tensor,
    *,
    temperature: float,
    chunk_size: int | None = None,
    bias: Tensor | None = None,
    entropy_grad: bool = False,
) -> tuple[Tensor, Tensor]:
    """`log softmax((hidden weight^T + bias) / temperature)` at `target_index`, and that distribution's entropy.

    Shapes: `hidden` [N, D]; `weight` [K, D] and `bias` [K], one row for each legal id; `target_index` [N], positions
    in `weight`; returns [N] and [N], nats. Logits exist for `chunk_size` rows at a time, in the backward pass too, which
    computes them again. Computed in fp32, or fp64 if an input is, under autocast as well. The entropy carries a gradient
    if `entropy_grad`. A legal id of probability 0 (a bias of -inf) adds nothing to either. No second derivatives.

    Raises: ValueError if the shapes disagree, or `temperature` or `chunk_size` is not positive.
    """
    _check(hidden, weight, target_index, bias)
    rows = max(1, _CHUNK_CELLS // max(1, len(weight))) if chunk_size is None else chunk_size
    if not temperature > 0 or rows < 1:
        raise ValueError(f"temperature and chunk_size must be positive, got {temperature} and {chunk_size}")
    with torch.autocast(hidden.device.type, enabled=False):
        found: tuple[Tensor, Tensor] = _LinearLogprobs.apply(  # type: ignore[no-untyped-call]
            hidden, weight, bias, target_index, temperature, rows, entropy_grad
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
        temperature: float,
        rows: int,
        entropy_grad: bool,
    ) -> tuple[Tensor, Tensor]:
        dtype = _compute_dtype(hidden, weight)
        selected, entropy = hidden.new_empty(len(hidden), dtype=dtype), hidden.new_empty(len(hidden), dtype=dtype)
        for part in _parts(len(hidden), rows):
            logprobs = _log_softmax(hidden[part], weight, bias, temperature, dtype)
            selected[part] = logprobs.gather(1, target_index[part, None])[:, 0]
            entropy[part] = _plogp(logprobs).sum(dim=1).neg_()
        ctx.save_for_backward(hidden, weight, bias, target_index, entropy)
        ctx.temperature, ctx.rows, ctx.entropy_grad = temperature, rows, entropy_grad
        if not entropy_grad:
            ctx.mark_non_differentiable(entropy)
        return selected, entropy

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_selected: Tensor, grad_entropy: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, bias, target_index, entropy = ctx.saved_tensors
        wants_hidden, wants_weight, wants_bias = ctx.needs_input_grad[:3]
        dtype = entropy.dtype
        grad_hidden = torch.empty_like(hidden) if wants_hidden else None
        # Summed over chunks in fp32, whatever the weight's type.
        grad_weight = torch.zeros(weight.shape, dtype=dtype, device=weight.device) if wants_weight else None
        grad_bias = torch.zeros(len(weight), dtype=dtype, device=weight.device) if wants_bias else None
        for part in _parts(len(hidden), ctx.rows):
            logprobs = _log_softmax(hidden[part], weight, bias, ctx.temperature, dtype)
            along = grad_selected[part, None]
            if ctx.entropy_grad:
                push = grad_entropy[part, None]
                terms = _plogp(logprobs)
                grad = logprobs.exp_()
                terms.add_(grad * entropy[part, None])
                grad.mul_(-along).sub_(terms.mul_(push))
            else:
                grad = logprobs.exp_().mul_(-along)
            grad.scatter_add_(1, target_index[part, None], along).div_(ctx.temperature)
            if grad_hidden is not None:
                grad_hidden[part] = _times_weight(grad, weight)
            if grad_weight is not None:
                grad_weight.addmm_(grad.T, hidden[part].to(dtype))
            if grad_bias is not None:
                grad_bias += grad.sum(dim=0)
        return (
            grad_hidden,
            grad_weight.to(weight.dtype) if grad_weight is not None else None,
            grad_bias.to(bias.dtype) if grad_bias is not None else None,
            *[None] * 4,
        )


def _parts(length: int, rows: int) -> Iterator[slice]:
    return (slice(start, start + rows) for start in range(0, length, rows))


def _compute_dtype(hidden: Tensor, weight: Tensor) -> torch.dtype:
    # Logits near 20 rounded to bf16 are off by up to 0.06 nats.
    return torch.promote_types(torch.promote_types(hidden.dtype, weight.dtype), torch.float32)


def _log_softmax(hidden: Tensor, weight: Tensor, bias: Tensor | None, temperature: float, dtype: torch.dtype) -> Tensor:
    hidden = hidden.to(dtype)
    if weight.dtype == dtype:
        logits = hidden @ weight.T
    else:
        logits = hidden.new_empty(len(hidden), len(weight))
        for part in _parts(len(weight), _WEIGHT_ROWS):
            logits[:, part] = hidden @ weight[part].to(dtype).T
    if bias is not None:
        logits += bias
    return torch.log_softmax(logits.div_(temperature), dim=-1)


def _times_weight(grad: Tensor, weight: Tensor) -> Tensor:
    if weight.dtype == grad.dtype:
        return grad @ weight
    product = grad.new_zeros(len(grad), weight.shape[1])
    for part in _parts(len(weight), _WEIGHT_ROWS):
        product.addmm_(grad[:, part], weight[part].to(grad.dtype))
    return product


def _plogp(logprobs: Tensor) -> Tensor:
    """p log p, 0 where p is 0: 0 * -inf is replaced, not computed."""
    return torch.where(torch.isneginf(logprobs), torch.zeros_like(logprobs), logprobs.exp() * logprobs)


def _check(hidden: Tensor, weight: Tensor, target_index: Tensor, bias: Tensor | None) -> None:
    # A gather with too few targets would answer for the first rows only, without a word.
    fits = hidden.ndim == weight.ndim == 2 and hidden.shape[1] == weight.shape[1]
    if not fits or target_index.shape != hidden.shape[:1] or (bias is not None and bias.shape != weight.shape[:1]):
        raise ValueError(
            f"expected hidden [N, D], weight [K, D], target_index [N], bias [K], got {tuple(hidden.shape)}, "
            f"{tuple(weight.shape)}, {tuple(target_index.shape)}, {None if bias is None else tuple(bias.shape)}"
        )
