"""Log-probs of chosen ids over the legal ids only, without the logits of the whole batch in memory."""

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

__all__ = ["selected_logprobs"]


def selected_logprobs(
    hidden: Tensor, weight: Tensor, target_index: Tensor, *, temperature: float, chunk_size: int
) -> tuple[Tensor, Tensor]:
    """`log softmax(hidden weight^T / temperature)` at `target_index`, and the entropy of that distribution.

    Shapes: `hidden` [N, D]; `weight` [K, D], one row for each legal id; `target_index` [N], positions in `weight`;
    returns [N] and [N], nats. Logits exist for `chunk_size` rows at a time, in the backward pass too.
    Computed in fp32, or fp64 if the inputs are. The entropy carries no gradient.
    """
    parts = [
        checkpoint(_chunk, h, weight, t, temperature, use_reentrant=False)
        for h, t in zip(hidden.split(chunk_size), target_index.split(chunk_size), strict=True)
    ]
    return torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts])


def _chunk(hidden: Tensor, weight: Tensor, target_index: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    logits = F.linear(hidden, weight)
    if logits.dtype not in (torch.float32, torch.float64):
        logits = logits.float()
    logprobs = torch.log_softmax(logits / temperature, dim=-1)
    with torch.no_grad():
        # A legal id of probability 0 adds nothing: 0 * -inf is replaced, not computed.
        terms = torch.where(torch.isneginf(logprobs), torch.zeros_like(logprobs), logprobs.exp() * logprobs)
        entropy = -terms.sum(dim=-1)
    return logprobs.gather(1, target_index[:, None])[:, 0], entropy
