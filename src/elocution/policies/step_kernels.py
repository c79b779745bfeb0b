"""The parts of a decode step that are no matrix product of the weights, as operations of torch: any device, any type."""

from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = ["StepKernels", "TorchKernels", "turn"]


def turn(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary positions. Shapes: [..., d], and what broadcasts to it; the first half of each sine is negated."""
    return torch.addcmul(heads * cos, heads.roll(heads.shape[-1] // 2, dims=-1), sin)


class StepKernels(Protocol):
    """Rotary positions, cache and attention of one new position for each row, and RMS norms.

    Shapes: `keys` [rows, kv, d, size] and `values` [rows, kv, size, d] of at least B rows, at least as long as the rows.
    """

    def begin(self, places: Tensor, cos: Tensor, sin: Tensor) -> None:
        """Says for the calls that follow where each row's new position lies: behind that many others.

        Shapes: `places` [B]; `cos`, `sin` [size, d], of which the first half of each sine is negated.
        """

    def attend(self, heads: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Writes the new keys and values, and returns what the queries find up to there.

        Shapes: `heads` [B, queries + 2 kv, d]: queries, keys, values -> [B, queries * d].
        """

    def norm(self, hidden: Tensor, weight: Tensor) -> Tensor:
        """Shapes: [B, D], [D] -> [B, D]."""


class TorchKernels:
    """`StepKernels` for `num_kv_heads`; rows attend over as many positions as the longest has, masked."""

    def __init__(self, num_kv_heads: int, eps: float) -> None:
        self._num_kv_heads, self._eps = num_kv_heads, eps
        self._places = self._rows = self._cos = self._sin = self._is_beyond = torch.empty(0, device="cpu")

    def begin(self, places: Tensor, cos: Tensor, sin: Tensor) -> None:
        self._places, self._rows = places, torch.arange(len(places), device=places.device)
        self._cos, self._sin = cos[places, None], sin[places, None]  # [B, 1, d]
        is_beyond = torch.arange(int(places.max()) + 1, device=places.device) > places[:, None]
        self._is_beyond = is_beyond.repeat_interleave(self._num_kv_heads, dim=0)[:, None]  # [B * kv, 1, longest]

    def attend(self, heads: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        (rows, _, head_dim), kv, longest = heads.shape, self._num_kv_heads, self._is_beyond.shape[-1]
        turned = turn(heads[:, :-kv], self._cos, self._sin).to(keys.dtype)
        keys[self._rows, :, :, self._places] = turned[:, -kv:]
        values[self._rows, :, self._places] = heads[:, -kv:].to(values.dtype)
        # Query heads that share a key head stand as positions of one query: [B * kv, queries per key, d].
        query = turned[:, :-kv].reshape(rows * kv, -1, head_dim)
        # Two small batched products: torch's fused attention takes three times as long for so few queries.
        scores = torch.bmm(query, keys[:rows, :, :, :longest].flatten(0, 1)).mul_(head_dim**-0.5)
        scores = torch.softmax(scores.masked_fill_(self._is_beyond, -torch.inf), dim=-1)
        return torch.bmm(scores, values[:rows, :, :longest].flatten(0, 1)).view(rows, -1)

    def norm(self, hidden: Tensor, weight: Tensor) -> Tensor:
        return F.rms_norm(hidden, weight.shape, weight, self._eps)
