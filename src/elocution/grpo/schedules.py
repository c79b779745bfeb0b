"""Quantities that change over a run: clip bounds, temperature. Pure functions."""

import math
from typing import Literal

__all__ = ["Schedule", "scheduled"]

Schedule = Literal["constant", "linear", "cosine"]


def scheduled(start: float, end: float, step: int, total: int, schedule: Schedule) -> float:
    """The value at `step` of 1 .. `total`: `start` at the first, `end` at the last, between them as `schedule` says; `start`
    at all of them if it is constant.

    Raises: ValueError if the step is outside the run.
    """
    if not 1 <= step <= total:
        raise ValueError(f"step {step} is not one of 1 to {total}")
    if schedule == "constant":
        return start
    share = (step - 1) / (total - 1) if total > 1 else 0.0
    if schedule == "cosine":
        share = (1 - math.cos(math.pi * share)) / 2
    return start + (end - start) * share
