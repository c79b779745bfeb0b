"""The part of a combination that depends on the steps before: running baselines, and prices of constraints."""

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from statistics import fmean
from typing import Any

from elocution.config.tree import ConstraintConfig, RewardConfig
from elocution.errors import CheckpointError, ConfigError, RewardError
from elocution.rewards.base import FLOOR
from elocution.rewards.combine import (
    Constraint,
    RunningBaseline,
    constraint_penalty,
    present_weights,
    update_prices,
    z_score_gate,
)
from elocution.types import Score

__all__ = ["RunningValues"]

logger = logging.getLogger(__name__)


class RunningValues:
    """A `RewardState` of scores that have `parts` and `raw` measures, whoever measured them.

    With `combine = "z_score"` the value is that of `z_score_gate`; constraints take their penalties from it. What was
    not heard takes the lowest value of its step, and at most `FLOOR`. Without either, values stay as they are.
    """

    def __init__(self, config: RewardConfig) -> None:
        self._config = config
        self._weights = {name: component.weight for name, component in config.components.items()}
        self._baselines: dict[str, RunningBaseline] = {}
        self._bases: dict[str, float] = {}
        self._prices: dict[str, float] = {}
        if self._has_baselines and config.gate_beta:
            logger.warning(
                'reward.combine = "z_score" with reward.gate_beta = %g is there to replicate a published recipe: its sign '
                'flips below the mean, where more wrong words raise the reward; combine = "sum" keeps it',
                config.gate_beta,
            )

    @property
    def _has_baselines(self) -> bool:
        return self._config.combine == "z_score"

    def revalue(self, scores: Sequence[Score]) -> list[Score]:
        """Raises: ConfigError if a score has a part without a weight, or lacks the WER that the gate needs."""
        if not self._has_baselines and not self._config.constraints:
            return list(scores)
        heard = [score for score in scores if _is_heard(score)]
        baselines, constraints = self._current_baselines(heard), self._constraints()
        means = self._means(heard)
        values = iter([self._value(s, baselines) - self._penalty(s, constraints, means) for s in heard])
        found = [replace(score, value=next(values)) if _is_heard(score) else score for score in scores]
        lowest = min([FLOOR, *(score.value for score in found if _is_heard(score) and score.value is not None)])
        return [score if score.value is None or _is_heard(score) else replace(score, value=lowest) for score in found]

    def advance(self, scores: Sequence[Score]) -> dict[str, float]:
        """Once a step. The first step sets the bases that constraints hold to.

        Raises: RewardError if no completion of the first step has a measure that a constraint is about.
        """
        config = self._config
        heard = [score for score in scores if _is_heard(score)]
        metrics: dict[str, float] = {}
        if self._has_baselines:
            for name in self._weights:
                baseline = self._baselines.get(name, RunningBaseline())
                values = [score.parts[name] for score in heard if name in score.parts]
                self._baselines[name] = baseline.after(values, momentum=config.baseline_momentum)
                metrics[f"baseline/{name}_mean"] = self._baselines[name].mean
                metrics[f"baseline/{name}_std"] = math.sqrt(self._baselines[name].variance)
        if config.constraints:
            means = self._means(heard)
            if not self._bases:
                self._set_bases(means)
            constraints = self._constraints()
            self._prices = update_prices(
                self._prices, constraints, means, rate=config.price_rate, largest=config.max_price
            )
            for name, constraint in constraints.items():
                metrics[f"constraint/{name}_price"] = self._prices.get(name, 0.0)
                if name in means:
                    metrics[f"constraint/{name}_mean"] = means[name]
                    metrics[f"constraint/{name}_violation"] = constraint.violation(means[name])
        return metrics

    def state_dict(self) -> dict[str, Any]:
        if not self._has_baselines and not self._config.constraints:
            return {}
        return {
            "baselines": {name: asdict(baseline) for name, baseline in self._baselines.items()},
            "bases": dict(self._bases),
            "prices": dict(self._prices),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Raises: CheckpointError if it is not the state of a reward with these parts and constraints."""
        if state.keys() != self.state_dict().keys():
            raise CheckpointError(
                f"the checkpoint holds {', '.join(state) or 'nothing'} of the reward, expected "
                f"{', '.join(self.state_dict()) or 'nothing'}"
            )
        if not state:
            return
        constraints = self._config.constraints
        known: dict[str, Mapping[str, Any]] = {
            "baselines": self._weights,
            "bases": constraints,
            "prices": constraints,
        }
        for kind, names in known.items():
            if stray := sorted(state[kind].keys() - names.keys()):
                raise CheckpointError(
                    f"the checkpoint has {kind} of {', '.join(stray)}, which the reward does not have"
                )
        self._baselines = {name: RunningBaseline(**baseline) for name, baseline in state["baselines"].items()}
        self._bases, self._prices = dict(state["bases"]), dict(state["prices"])

    def _current_baselines(self, heard: Sequence[Score]) -> dict[str, RunningBaseline]:
        """Those of the steps before; where nothing was seen before, the step's own."""
        return {
            name: self._baselines.get(name)
            or RunningBaseline().after([score.parts[name] for score in heard if name in score.parts], momentum=0)
            for name in self._weights
        }

    def _value(self, score: Score, baselines: Mapping[str, RunningBaseline]) -> float:
        assert score.value is not None
        if not self._has_baselines:
            return score.value
        if score.parts.keys() - self._weights.keys():
            raise ConfigError(
                f"the reward's parts are {', '.join(sorted(score.parts))}, but [reward.components] has weights for "
                f"{', '.join(sorted(self._weights))}"
            )
        if self._config.gate_beta and "wer" not in score.raw:
            raise ConfigError(f"reward.gate_beta needs the measure wer, the scores have {', '.join(score.raw)}")
        weights = present_weights(score.parts, self._weights, on_missing="renormalize")
        if weights is None:
            raise ConfigError('reward.combine = "z_score" needs scores with parts, and these have none')
        present = {name: baselines[name] for name in weights}
        return z_score_gate(score.parts, weights, present, score.raw.get("wer", 0.0), beta=self._config.gate_beta)

    def _penalty(self, score: Score, constraints: Mapping[str, Constraint], means: Mapping[str, float]) -> float:
        """A measure that the score lacks counts as its mean over the step, so that lacking it is of no use."""
        values = {**means, **self._measured(score)}
        measured = {name: constraint for name, constraint in constraints.items() if name in values}
        return constraint_penalty(self._prices, measured, values)

    def _measured(self, score: Score) -> dict[str, float]:
        """What the score has to say to each constraint, by its name."""
        return {
            name: score.raw[constraint.fact]
            for name, constraint in self._config.constraints.items()
            if constraint.fact in score.raw
        }

    def _means(self, heard: Sequence[Score]) -> dict[str, float]:
        measured = [self._measured(score) for score in heard]
        columns = {name: [row[name] for row in measured if name in row] for name in self._config.constraints}
        return {name: fmean(column) for name, column in columns.items() if column}

    def _set_bases(self, means: Mapping[str, float]) -> None:
        if missing := [name for name in self._config.constraints if name not in means]:
            facts = ", ".join(self._config.constraints[name].fact for name in missing)
            raise RewardError(
                f"no completion of the first step has the measure {facts}, "
                f"to which reward.constraints ({', '.join(missing)}) would hold later ones"
            )
        self._bases = dict(means)

    def _constraints(self) -> dict[str, Constraint]:
        """The constraints, once their bases are known."""
        return {name: _constraint(self._config.constraints[name], base) for name, base in self._bases.items()}


def _is_heard(score: Score) -> bool:
    """Whether the score says something about speech: neither the lack of a score, nor the lowest for no speech."""
    return score.value is not None and not score.raw.get("empty_transcript")


def _constraint(config: ConstraintConfig, base: float) -> Constraint:
    if config.keep == "at_least":
        return Constraint(at_least=config.share * base - config.slack, scale=config.scale)
    return Constraint(at_most=config.share * base + config.slack, scale=config.scale)
