"""How much each cell counts in the loss of an optimiser step. Pure functions; knows nothing of speech.

A step's loss is the sum of weight times per-cell loss over all its micro-batches, so that cutting the step differently
changes no gradient: whatever is averaged, is averaged over the whole step.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

__all__ = ["Aggregation", "StepTotals", "cell_weights", "parse_channel_weights"]

Aggregation = Literal["token", "sequence", "fixed"]


@dataclass(frozen=True)
class StepTotals:
    """Counts over a whole optimiser step, all its micro-batches and ranks. `sequences` are completions with an unmasked
    cell; `finished` those of them that have a stop cell; `tokens` are unmasked cells by channel, stop cells among them.
    """

    sequences: int
    finished: int
    tokens: tuple[int, ...]

    @classmethod
    def of(cls, masks: Iterable[Tensor], finished: Iterable[Tensor]) -> "StepTotals":
        """Sums over micro-batches. Shapes: masks [B, T, C] bool, `finished` [B] bool, of each micro-batch."""
        masks, finished = list(masks), list(finished)
        tokens = torch.stack([mask.sum(dim=(0, 1)) for mask in masks]).sum(dim=0)
        return cls(
            sequences=sum(int(mask.any(dim=2).any(dim=1).sum()) for mask in masks),
            finished=sum(int(_stop_cells(mask, rows).sum()) for mask, rows in zip(masks, finished, strict=True)),
            tokens=tuple(tokens.tolist()),
        )

    @classmethod
    def over(cls, parts: "Sequence[StepTotals]") -> "StepTotals":
        """The counts of a step whose `parts`, at least one, were counted apart."""
        return cls(
            sequences=sum(part.sequences for part in parts),
            finished=sum(part.finished for part in parts),
            tokens=tuple(map(sum, zip(*(part.tokens for part in parts), strict=True))),
        )


def cell_weights(
    mask: Tensor,
    finished: Tensor,
    totals: StepTotals,
    *,
    aggregation: Aggregation,
    channel_weights: Sequence[float] | None = None,
    fixed_length: int | None = None,
    whole_stops: bool = False,
) -> Tensor:
    """What the loss of each cell is multiplied by; 0 outside the mask. Shapes: `mask` [B, T, C], `finished` [B] -> [B, T, C].

    `token`: the mean over the cells of the step (DAPO). `sequence`: the mean over completions of the mean over their
    cells (GRPO). `fixed`: the sum over cells divided by completions times `fixed_length` (Dr. GRPO).
    `channel_weights` [C]: each channel is averaged by itself, and the averages are weighted and divided by the sum of the
    weights, as in the supervised loss of multi-codebook models; without them all cells count alike.
    `whole_stops`: the stop of a finished completion, the last cell of channel 0, is averaged over stops and not over
    cells, and added to the average of the channel's other cells: a long completion does not dilute it.

    Raises: ValueError if the shapes disagree, a weight is negative or all are 0, or `fixed_length` is missing.
    Source: GRPO (arXiv:2402.03300) eq. 3; DAPO (arXiv:2503.14476) eq. 8; Dr. GRPO (arXiv:2503.20783) eq. 4.
    """
    channels = mask.shape[2]
    if finished.shape != mask.shape[:1] or len(totals.tokens) != channels:
        raise ValueError(f"mask {tuple(mask.shape)}, finished {tuple(finished.shape)} and {totals} do not fit")
    if channel_weights is not None:
        _check_channel_weights(channel_weights, channels)
    stops = _stop_cells(mask, finished) if whole_stops else torch.zeros_like(mask)
    plain = mask & ~stops
    weights = _plain_weights(plain, totals, whole_stops, aggregation, channel_weights, fixed_length)
    if whole_stops and totals.finished:
        share = 1.0 if channel_weights is None else channel_weights[0] / sum(channel_weights)
        weights = weights + stops.double() * (share / totals.finished)
    return weights


def _plain_weights(
    mask: Tensor,
    totals: StepTotals,
    without_stops: bool,
    aggregation: Aggregation,
    channel_weights: Sequence[float] | None,
    fixed_length: int | None,
) -> Tensor:
    cells = mask.double()
    tokens = list(totals.tokens)
    if without_stops:
        tokens[0] -= totals.finished
    if channel_weights is None:
        shares = cells.new_ones(mask.shape[2])
        own = cells.sum(dim=(1, 2), keepdim=True)
        total = cells.new_tensor([sum(tokens)] * len(tokens))
    else:
        shares = cells.new_tensor(channel_weights) / sum(channel_weights)
        own = cells.sum(dim=1, keepdim=True)
        total = cells.new_tensor(tokens)
    if aggregation == "token":
        return cells * shares / total.clamp_min(1)
    sequences = max(totals.sequences, 1)
    if aggregation == "sequence":
        return cells * shares / own.clamp_min(1) / sequences
    if fixed_length is None or fixed_length < 1:
        raise ValueError(f"aggregation 'fixed' needs a fixed_length of at least 1, got {fixed_length}")
    return cells * shares / (sequences * fixed_length)


def _stop_cells(mask: Tensor, finished: Tensor) -> Tensor:
    """The last unmasked cell of channel 0 of finished completions. Shapes: [B, T, C] bool."""
    first = mask[..., 0]
    later = first.flip(1).cumsum(1).flip(1)  # unmasked cells from here on, this one counted
    stops = torch.zeros_like(mask)
    stops[..., 0] = first & (later == 1) & finished[:, None]
    return stops


def parse_channel_weights(text: str, num_channels: int) -> tuple[float, ...]:
    """ "1,32" -> channel 0 weighs 1 and the others share 32 evenly; or one number for each channel.

    Raises: ValueError if there are neither two numbers nor `num_channels`, one is negative or not finite, or all are 0.
    Source: MOSS-TTS `--channelwise-loss-weight`.
    """
    numbers = tuple(float(part) for part in text.split(","))
    if len(numbers) == 2 and num_channels > 2:
        numbers = (numbers[0], *[numbers[1] / (num_channels - 1)] * (num_channels - 1))
    elif len(numbers) != num_channels:
        raise ValueError(f"expected 2 or {num_channels} channel weights, got {text!r}")
    _check_channel_weights(numbers, num_channels)
    return numbers


def _check_channel_weights(weights: Sequence[float], channels: int) -> None:
    # NaN and infinity would make every loss of the run NaN.
    usable = all(0 <= weight < math.inf for weight in weights) and sum(weights) > 0
    if len(weights) != channels or not usable:
        raise ValueError(f"expected {channels} channel weights, finite, at least 0, not all 0, got {list(weights)}")
