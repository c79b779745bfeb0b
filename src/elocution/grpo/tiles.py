"""An output layer walked in tiles of cells by legal ids, so that the logits of all cells and ids never exist at once.

A cell's softmax is put together from the maximum and the sum of each tile, as in cut cross-entropy (arXiv:2411.09009).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = [
    "TILE",
    "Columns",
    "LayerInputs",
    "MergedSoftmax",
    "OutputTile",
    "Slopes",
    "TiledLayer",
    "Walk",
    "merge_softmax",
    "product",
    "refuse_second_derivative",
    "softmax_parts",
]

TILE = (1024, 2048)  # cells and legal ids: 8 MiB of logits in fp32


@dataclass(frozen=True)
class Columns:
    """Some legal ids: their places among all of them, and the rows of the output matrix that belong to them."""

    places: slice
    rows: slice | Tensor

    def find(self, target_index: Tensor) -> tuple[Tensor, Tensor]:
        """Targets counted from the first place, moved to an end if they lie elsewhere, and which lie here. Shapes: [R]."""
        local, count = target_index - self.places.start, self.places.stop - self.places.start
        return local.clamp(0, count - 1), (local >= 0) & (local < count)


class OutputTile(NamedTuple):
    """Rows of an output layer in the precision of the logits. Shapes: `weight` [C, D]; `bias` [C], over the temperature."""

    weight: Tensor
    bias: Tensor | None

    def logits(self, cooled: Tensor) -> Tensor:
        """Logits over the temperature, a new tensor, from hidden states over the temperature. Shapes: [R, D] -> [R, C]."""
        if self.bias is None:
            return cooled @ self.weight.T
        return torch.addmm(self.bias, cooled, self.weight.T)


LayerInputs = tuple[Tensor, Tensor, Tensor | None]
"""Hidden states [N, D], output matrix [V, D], bias [V]."""

Slopes = Callable[[Columns], Callable[[slice, Tensor], Tensor]]
"""From a tile's columns, then its rows and its logits over the temperature, to the gradient of these; may be in place."""


@dataclass(frozen=True)
class Walk:
    """The order in which layers are walked: `columns` cover the legal ids, `num_rows` is the cells of a tile.

    `dtype` is the precision of logits and sums.
    """

    columns: list[Columns]
    num_rows: int
    temperature: float
    dtype: torch.dtype

    @classmethod
    def over(cls, *layers: LayerInputs, legal_ids: Tensor | None, temperature: float, tile: tuple[int, int]) -> "Walk":
        """Over the rows `legal_ids` [K] of each layer's matrix, all if None, in fp32 or in fp64 if an input is.

        Raises: ValueError if shapes disagree, an id has no row, or the temperature or a side of `tile` is not positive.
        """
        dtype = torch.float32  # logits near 20 rounded to bf16 are off by up to 0.06 nats
        num_cells, num_ids = len(layers[0][0]), len(layers[0][1])
        for hidden, weight, bias in layers:
            fits = hidden.ndim == weight.ndim == 2 and hidden.shape[1] == weight.shape[1] and len(hidden) == num_cells
            if not fits or (bias is not None and bias.shape != weight.shape[:1]):
                shown = [None if each is None else tuple(each.shape) for each in (hidden, weight, bias)]
                raise ValueError(f"expected {num_cells} hidden states [N, D], weight [V, D], bias [V], got {shown}")
            if len(weight) != num_ids and legal_ids is None:
                raise ValueError(
                    f"the output matrices have {num_ids} and {len(weight)} rows; legal_ids must say which count"
                )
            num_ids = min(num_ids, len(weight))
            dtype = torch.promote_types(torch.promote_types(hidden.dtype, weight.dtype), dtype)
        if not temperature > 0 or min(tile) < 1:
            raise ValueError(f"temperature and tile must be positive, got {temperature} and {tile}")
        ids = torch.arange(num_ids, device="cpu") if legal_ids is None else legal_ids.cpu()
        if ids.ndim != 1 or not len(ids) or not 0 <= int(ids.min()) <= int(ids.max()) < num_ids:
            raise ValueError(
                f"legal_ids [K] must name at least one of the {num_ids} rows of the output matrix, and no other"
            )
        if len(ids.unique()) != len(ids):
            raise ValueError("legal_ids names a row of the output matrix twice")
        device = layers[0][1].device
        columns = [Columns(part, _rows(ids[part], device)) for part in _parts(len(ids), tile[1])]
        return cls(columns, tile[0], temperature, dtype)

    @property
    def num_legal(self) -> int:
        return int(self.columns[-1].places.stop)


@dataclass(frozen=True)
class TiledLayer:
    """Hidden states [N, D] and the output layer, matrix [V, D] and bias [V], that turns them into logits, tile by tile."""

    hidden: Tensor
    weight: Tensor
    bias: Tensor | None
    walk: Walk

    def rows(self) -> Iterator[slice]:
        """The cells of each tile."""
        return _parts(len(self.hidden), self.walk.num_rows)

    def tile(self, columns: Columns) -> OutputTile:
        """The rows of the layer that belong to `columns`, a view of them where they need no copy."""
        dtype, temperature = self.walk.dtype, self.walk.temperature
        bias = None if self.bias is None else self.bias[columns.rows].to(dtype) / temperature
        return OutputTile(self.weight[columns.rows].to(dtype), bias)

    def cooled(self, rows: slice) -> Tensor:
        """Hidden states over the temperature. Shapes: [R, D]."""
        return self.hidden[rows].to(self.walk.dtype) / self.walk.temperature

    def gradients(self, wanted: Sequence[bool], slopes: Slopes) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """Those of hidden states, matrix and bias that are `wanted`, summed in the precision of the logits."""
        dtype, temperature = self.walk.dtype, self.walk.temperature
        grad_hidden = torch.zeros_like(self.hidden, dtype=dtype) if wanted[0] else None
        grad_weight = torch.zeros_like(self.weight) if wanted[1] else None
        grad_bias = torch.zeros_like(self.bias) if wanted[2] and self.bias is not None else None
        for columns in self.walk.columns:
            tile, slope = self.tile(columns), slopes(columns)
            tile_weight = torch.zeros_like(tile.weight) if wanted[1] else None
            tile_bias = torch.zeros_like(tile.bias) if wanted[2] and tile.bias is not None else None
            for rows in self.rows():
                cooled = self.cooled(rows)
                grad = slope(rows, tile.logits(cooled))
                if grad_hidden is not None:
                    grad_hidden[rows].addmm_(grad, tile.weight)
                if tile_weight is not None:
                    tile_weight.addmm_(grad.T, cooled)
                if tile_bias is not None:
                    tile_bias += grad.sum(dim=0)
            if grad_weight is not None and tile_weight is not None:
                grad_weight[columns.rows] = tile_weight.to(grad_weight.dtype)
            if grad_bias is not None and tile_bias is not None:
                grad_bias[columns.rows] = (tile_bias / temperature).to(grad_bias.dtype)
        if grad_hidden is not None:
            grad_hidden = grad_hidden.div_(temperature).to(self.hidden.dtype)
        return grad_hidden, grad_weight, grad_bias


class MergedSoftmax(NamedTuple):
    """The softmax of whole rows, from J tiles. Shapes: `log_sum_exp`, `log_total` [N]; `gaps`, `shares` [J, N].

    `gaps` are the tiles' maxima less the row's; the sum of exponentials in a tile times its share is a probability;
    `log_total` is the log of their sum counted from the row's maximum, `log_sum_exp` counted from 0.
    """

    log_sum_exp: Tensor
    log_total: Tensor
    gaps: Tensor
    shares: Tensor


def softmax_parts(logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The largest logit of each row, the logits less it (in place), and their exponentials. Shapes: [R], [R, C] twice."""
    top = logits.amax(dim=1)
    shifted = logits.sub_(torch.where(torch.isneginf(top), torch.zeros_like(top), top)[:, None])
    return top, shifted, shifted.exp()


def merge_softmax(tops: Tensor, totals: Tensor) -> MergedSoftmax:
    """From the maxima of tiles and their sums of exponentials, counted from the maxima. Shapes: [J, N] each."""
    top = tops.amax(dim=0)
    # A tile in which nothing can be drawn has the maximum -inf and no part in the sum.
    gaps = torch.where(totals == 0, torch.zeros_like(tops), tops - top)
    scales = gaps.exp()
    total = (scales * totals).sum(dim=0)
    log_total = total.log()
    return MergedSoftmax(top + log_total, log_total, gaps, scales / total)


def product(probabilities: Tensor, logs: Tensor) -> Tensor:
    """Their product, in the place of `logs`; 0 where a probability is 0, whatever its log, infinities included."""
    return logs.mul_(probabilities).masked_fill_(probabilities == 0, 0.0)


def refuse_second_derivative(name: str) -> None:
    """To be called in a backward pass, which records itself only if the caller means to differentiate it.

    Raises: RuntimeError then, even if the incoming gradients are constants, as those of a plain sum are.
    """
    if torch.is_grad_enabled():
        raise RuntimeError(f"{name} has no second derivative; leave out create_graph=True")


def _parts(length: int, size: int) -> Iterator[slice]:
    return (slice(start, min(start + size, length)) for start in range(0, length, size))


def _rows(ids: Tensor, device: torch.device) -> slice | Tensor:
    """Rows without a gap as a slice, whose weights need not be copied."""
    if bool((ids.diff() == 1).all()):
        return slice(int(ids[0]), int(ids[-1]) + 1)
    return ids.to(device)
