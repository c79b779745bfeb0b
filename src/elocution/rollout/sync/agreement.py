"""Whether an engine's values are the trainer's, and whether they moved when the trainer's moved. Pure functions."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

__all__ = ["Following", "Movement", "classify_movement", "flatten", "prefix_share", "response_share"]

# A response is that of the new weights between these shares of the movement; nearer to 0, it is that of the old ones.
_LOW, _HIGH = 0.5, 1.5
_CONFIDENCE = 3.0  # standard errors


class Following(StrEnum):
    """What an engine's values say of a change of weights."""

    FOLLOWED = "followed"
    NOT_FOLLOWED = "not followed"
    UNTOLD = "untold"  # the weights moved too little against the engine's rounding


@dataclass(frozen=True)
class Movement:
    """How much of the trainer's movement the engine shows: 1 if all, 0 if none, and the standard error of that."""

    share: float
    error: float


def response_share(
    old: NDArray[np.float64], new: NDArray[np.float64], engine_old: NDArray[np.float64], engine: NDArray[np.float64]
) -> Movement | None:
    """The share of the trainer's movement `new - old` that the engine's `engine - engine_old` has; None if there is none.

    A least-squares fit of one number over all cells. The engine's rounding does not follow the movement, so it averages
    out: many cells show a movement that is smaller in each of them than the rounding. Shapes: [N] each.
    """
    movement, response = new - old, engine - engine_old
    squared = float(movement @ movement)
    if squared == 0 or len(movement) < 2:
        return None
    share = float(movement @ response) / squared
    rest = response - share * movement
    return Movement(share, math.sqrt(float(rest @ rest) / (len(movement) - 1) / squared))


def classify_movement(movement: Movement) -> Following:
    """FOLLOWED or NOT_FOLLOWED if the share is on one side of the bounds by three standard errors, else UNTOLD."""
    low, high = movement.share - _CONFIDENCE * movement.error, movement.share + _CONFIDENCE * movement.error
    if low > _LOW and high < _HIGH:
        return Following.FOLLOWED
    return Following.NOT_FOLLOWED if high < _LOW or low > _HIGH else Following.UNTOLD


def flatten(values: Sequence[NDArray[np.float32]]) -> NDArray[np.float64]:
    """All cells in one row. Shapes: [T, C] each -> [N]."""
    return np.concatenate([value.reshape(-1).astype(np.float64) for value in values])


def prefix_share(found: Sequence[NDArray[np.int64]], expected: Sequence[NDArray[np.int64]]) -> float:
    """Mean share of each expected sequence that the found one begins with, 1 if all are equal. Shapes: [T, C] each."""
    shares = []
    for one, other in zip(found, expected, strict=True):
        common = min(len(one), len(other))
        differ = np.flatnonzero((one[:common] != other[:common]).any(axis=1))
        same = int(differ[0]) if len(differ) else common
        shares.append(same / max(len(one), len(other)))
    return float(np.mean(shares))
