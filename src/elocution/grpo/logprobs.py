"""Log-probs of chosen ids over the legal ids only, without the logits of the whole batch in memory."""

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

__all__ = ["selected_logprobs"]


def selected_logprobs(
    hidden: Tensor,
    weight: Tensor,
    target_index: Tensor,
    *,
    temperature: float,
    chunk_size: int,
    bias: Tensor | None = None,
    entropy_grad: bool = False,
) -> tuple[Tensor, Tensor]:
    """`log softmax((hidden weight^T + bias) / temperature)` at `target_index`, and that distribution's entropy.

    Shapes: `hidden` [N, D]; `weight` [K, D] and `bias` [K], one row for each legal id; `target_index` [N], positions
    in `weight`; returns [N] and [N], nats. Logits exist for `chunk_size` rows at a time, in the backward pass too.
    Computed in fp32, or fp64 if an input is, under autocast as well. The entropy carries a gradient if `entropy_grad`.

    Raises: ValueError if the shapes disagree, or `temperature` or `chunk_size` is not positive.
    """
    _check(hidden, weight, target_index, bias)
    if not temperature > 0 or chunk_size < 1:
        raise ValueError(f"temperature and chunk_size must be positive, got {temperature} and {chunk_size}")
    # Logits near 20 rounded to bf16 are off by up to 0.06 nats. Converted once, so that the weight's gradient is also
    # summed over the chunks in this precision.
    dtype = torch.promote_types(torch.promote_types(hidden.dtype, weight.dtype), torch.float32)
    weight = weight.to(dtype)
    bias = bias.to(dtype) if bias is not None else None
    parts = [
        checkpoint(_chunk, h, weight, bias, t, temperature, entropy_grad, use_reentrant=False, preserve_rng_state=False)
        for h, t in zip(torch.split(hidden, chunk_size), torch.split(target_index, chunk_size), strict=True)
    ]
    return torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts])


def _chunk(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, target_index: Tensor, temperature: float, entropy_grad: bool
) -> tuple[Tensor, Tensor]:
    with torch.autocast(hidden.device.type, enabled=False):
        logprobs = torch.log_softmax(F.linear(hidden.to(weight.dtype), weight, bias) / temperature, dim=-1)
    with torch.set_grad_enabled(entropy_grad and torch.is_grad_enabled()):
        # A legal id of probability 0 adds nothing: 0 * -inf is replaced, not computed.
        terms = torch.where(torch.isneginf(logprobs), torch.zeros_like(logprobs), logprobs.exp() * logprobs)
        entropy = -terms.sum(dim=-1)
    return logprobs.gather(1, target_index[:, None])[:, 0], entropy


def _check(hidden: Tensor, weight: Tensor, target_index: Tensor, bias: Tensor | None) -> None:
    # A gather with too few targets would answer for the first rows only, without a word.
    fits = hidden.ndim == weight.ndim == 2 and hidden.shape[1] == weight.shape[1]
    if not fits or target_index.shape != hidden.shape[:1] or (bias is not None and bias.shape != weight.shape[:1]):
        raise ValueError(
            f"expected hidden [N, D], weight [K, D], target_index [N], bias [K], got {tuple(hidden.shape)}, "
            f"{tuple(weight.shape)}, {tuple(target_index.shape)}, {None if bias is None else tuple(bias.shape)}"
        )
