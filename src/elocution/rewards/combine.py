"""From measures to one number: utilities in [0, 1], and the ways to combine them. Pure functions.

A utility is higher where speech is better. A component that was not measured is absent from the mapping, never a number.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

__all__ = [
    "Constraint",
    "RunningBaseline",
    "constraint_penalty",
    "error_power",
    "error_tanh",
    "gate",
    "present_weights",
    "update_prices",
    "weighted_harmonic_mean",
    "weighted_sum",
    "z_score_gate",
]

_FLOOR = 1e-8


def error_tanh(error: float, *, alpha: float) -> float:
    """`1 - tanh(alpha * error)`: 1 without an error, 0 with many. Source: Llasa-GRPO; CosyVoice2's recipe with alpha = 3."""
    return 1.0 - math.tanh(alpha * _non_negative("error rate", error))


def error_power(error: float, *, scale: float = 12.0, power: float = 1.5) -> float:
    """`exp(-scale * error ** power)`: nearly flat for the first wrong syllable, steep after it.

    Source: the improved CosyVoice2 recipe, with scale 12 and power 1.5.
    """
    return math.exp(-scale * _non_negative("error rate", error) ** power)


def present_weights(
    values: Mapping[str, float], weights: Mapping[str, float], *, on_missing: Literal["renormalize", "drop"]
) -> dict[str, float] | None:
    """The weights of the components that were measured, summing to 1; None if the completion is to be left out.

    `renormalize` goes on without a missing component, `drop` leaves the completion out of its group.

    Raises: ValueError if a value has no weight: it would be dropped without a word.
    """
    if stray := sorted(values.keys() - weights.keys()):
        raise ValueError(f"no weight for {', '.join(stray)}; there are weights for {', '.join(weights)}")
    if on_missing == "drop" and weights.keys() - values.keys():
        return None
    present = {name: weight for name, weight in weights.items() if name in values}
    total = sum(present.values())
    return {name: weight / total for name, weight in present.items()} if total > 0 else None


def weighted_sum(values: Mapping[str, float], weights: Mapping[str, float]) -> float:
    """`sum w_k u_k` over the same names."""
    return sum(weights[name] * values[name] for name in _same_names(values, weights))


def weighted_harmonic_mean(values: Mapping[str, float], weights: Mapping[str, float]) -> float:
    """`sum w_k / sum (w_k / u_k)` in [0, 1]: one bad utility pulls the whole down. Source: arXiv:2509.18798."""
    names = _same_names(values, weights)
    harmonic = sum(weights.values()) / sum(weights[name] / max(values[name], _FLOOR) for name in names)
    return min(1.0, max(0.0, harmonic))


def gate(score: float, error: float, *, beta: float) -> float:
    """`score * exp(-beta * error)` of a score that is not negative: words can be lost for nothing else.

    Raises: ValueError if the score is negative, where more errors would mean more reward.
    """
    if score < 0:
        raise ValueError(f"a gate needs a score of at least 0, got {score}; map it there first")
    return score * math.exp(-beta * _non_negative("error rate", error))


@dataclass(frozen=True, slots=True)
class RunningBaseline:
    """Mean and variance of a reward over the run so far, exponentially weighted; saved with a checkpoint."""

    mean: float = 0.0
    variance: float = 1.0
    count: int = 0

    def z_score(self, value: float) -> float:
        """Standard deviations above the mean; 0 before anything was seen."""
        return (value - self.mean) / math.sqrt(self.variance + _FLOOR) if self.count else 0.0

    def after(self, values: list[float], *, momentum: float) -> "RunningBaseline":
        """The baseline after a batch; the first batch sets it."""
        if not values:
            return self
        mean = sum(values) / len(values)
        variance = sum((value - mean) ** 2 for value in values) / len(values)
        if not self.count:
            return RunningBaseline(mean, variance, len(values))
        return RunningBaseline(
            momentum * self.mean + (1 - momentum) * mean,
            momentum * self.variance + (1 - momentum) * variance,
            self.count + len(values),
        )


def z_score_gate(
    values: Mapping[str, float],
    weights: Mapping[str, float],
    baselines: Mapping[str, RunningBaseline],
    error: float,
    *,
    beta: float,
) -> float:
    """`(sum w_k z_k) * exp(-beta * error)`, the published combination of the MOSS recipe, for replication.

    Its sign flips below the mean: there, garbled words raise the reward. `gate` of a score in [0, 1] does not.
    """
    names = _same_names(values, weights)
    combined = sum(weights[name] * baselines[name].z_score(values[name]) for name in names)
    return combined * math.exp(-beta * _non_negative("error rate", error))


@dataclass(frozen=True, slots=True)
class Constraint:
    """A measure whose mean must not fall below `at_least`, or rise above `at_most`; one of the two is given.

    `scale` is the violation that counts as 1, in the measure's unit.
    """

    at_least: float | None = None
    at_most: float | None = None
    scale: float = 1.0

    def __post_init__(self) -> None:
        if (self.at_least is None) == (self.at_most is None):
            raise ValueError("a constraint has either at_least or at_most")

    def violation(self, value: float) -> float:
        """How far `value` is on the wrong side, in scales; negative on the right side."""
        beyond = self.at_least - value if self.at_least is not None else value - (self.at_most or 0.0)
        return beyond / self.scale


def constraint_penalty(
    prices: Mapping[str, float], constraints: Mapping[str, Constraint], values: Mapping[str, float]
) -> float:
    """What a completion's reward loses: the sum of price times violation; negative where it does better than it must.

    It is linear, so that its mean is price times the violation of the mean, which `update_prices` watches.
    """
    return sum(prices.get(name, 0.0) * constraint.violation(values[name]) for name, constraint in constraints.items())


def update_prices(
    prices: Mapping[str, float],
    constraints: Mapping[str, Constraint],
    means: Mapping[str, float],
    *,
    rate: float,
    largest: float,
) -> dict[str, float]:
    """One step of dual ascent: a price rises while the batch mean violates its constraint, and falls to 0 while it holds.

    A constraint without a mean keeps its price.

    Source: Lagrangian relaxation as in constrained policy optimisation, Achiam et al. 2017, arXiv:1705.10528, in its
    primal-dual form.
    """
    updated = dict(prices)
    for name, constraint in constraints.items():
        if name in means:
            moved = updated.get(name, 0.0) + rate * constraint.violation(means[name])
            updated[name] = min(largest, max(0.0, moved))
    return updated


def _same_names(values: Mapping[str, float], weights: Mapping[str, float]) -> list[str]:
    if values.keys() != weights.keys():
        raise ValueError(f"values of {', '.join(sorted(values))}, but weights of {', '.join(sorted(weights))}")
    return list(values)


def _non_negative(what: str, value: float) -> float:
    if not value >= 0:
        raise ValueError(f"a {what} is at least 0, got {value}")
    return value
