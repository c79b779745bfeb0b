"""A reward put together in the config: facts, each made a utility in [0, 1], combined into one number."""

import math
from collections.abc import Mapping
from functools import partial

from elocution.config.tree import ComponentConfig, RewardConfig
from elocution.errors import ConfigError
from elocution.measures import check_recognisers
from elocution.measures.facts import FACTS, Findings, SpokenText
from elocution.rewards.base import FLOOR
from elocution.rewards.combine import (
    error_power,
    error_tanh,
    gate,
    present_weights,
    weighted_harmonic_mean,
    weighted_sum,
)
from elocution.rewards.listening import ListeningReward
from elocution.rewards.own_parts import build_parts_listener, check_own_part, is_own_part
from elocution.rewards.pool import ScoringPool
from elocution.rewards.running import RunningValues
from elocution.types import Audio, Rollout, Score

__all__ = ["CompositeReward", "utility", "wanted_facts"]


def utility(config: ComponentConfig, value: float) -> float:
    """The utility in [0, 1] of a fact's value under `config`; higher is better."""
    match config.utility:
        case "tanh":
            return error_tanh(value, alpha=config.scale)
        case "power":
            return error_power(value, scale=config.scale, power=config.power)
        case "exp":
            return min(1.0, math.exp(-value / config.scale))
        case "linear":
            return min(1.0, max(0.0, (value - config.low) / (config.high - config.low)))
        case "band":
            outside = max(config.low - value, value - config.high, 0.0)
            return max(0.0, 1.0 - outside / config.scale)


def wanted_facts(config: RewardConfig) -> tuple[str, ...]:
    """The facts that the components, the constraints and the gate of `config` need; `module:Class` is a reward's value.

    Raises: ConfigError if there is no such fact, or no such reward.
    """
    facts = [component.fact for component in config.components.values()]
    facts += [constraint.fact for constraint in config.constraints.values()]
    wanted = dict.fromkeys(facts + (["wer"] if config.gate_beta else []))
    own = [name for name in wanted if is_own_part(name)]
    for name in own:
        check_own_part(name)
    if unknown := sorted(wanted.keys() - FACTS.keys() - set(own)):
        raise ConfigError(
            f"reward.components and reward.constraints: no measure {', '.join(unknown)}; known are {', '.join(FACTS)}"
        )
    return tuple(wanted)


class CompositeReward(ListeningReward[SpokenText, Findings]):
    """`combine` of the components' utilities, times `exp(-gate_beta * WER)`; in [0, 1], higher is better.

    `parts` are the utilities by component, `raw` the facts. A completion of which nothing was heard takes `FLOOR`.
    What depends on the steps before, `z_score` and constraints, is `state`; until then `z_score` is a sum.
    """

    def __init__(self, config: RewardConfig, pool: ScoringPool[SpokenText, Findings] | None = None) -> None:
        if not config.components:
            raise ConfigError('reward.type = "composite" needs at least one [reward.components.NAME]')
        self._config = config
        self._weights = {name: component.weight for name, component in config.components.items()}
        self._constrained = [constraint.fact for constraint in config.constraints.values()]
        self._wanted = wanted_facts(config)
        self.state = RunningValues(config)
        sources = {FACTS[name].by for name in self._wanted if name in FACTS}
        check_recognisers(
            transcriber=config.asr if "recogniser" in sources else None,
            phoneme_scorer=config.nll if "phonemes" in sources else None,
        )
        for recogniser in config.asr_by_language.values():
            check_recognisers(transcriber=recogniser.name)
        super().__init__(
            pool
            or ScoringPool(
                *[partial(build_parts_listener, self._wanted, config, device) for device in config.devices],
                workers=config.num_workers,
                timeout_s=config.timeout_s,
                batch_size=config.batch_size,
            )
        )

    def _task(self, rollout: Rollout, audio: Audio) -> SpokenText:
        asked = rollout.utterance
        return SpokenText(
            audio, asked.text, asked.language, rollout.codes, asked.voice, asked.description, asked.emotion
        )

    def _score(self, found: Findings) -> Score:
        if found.transcript == "":
            return self._at_floor({**found.raw(), "empty_transcript": 1.0})
        config = self._config
        utilities = {
            name: utility(component, found.facts[component.fact])
            for name, component in config.components.items()
            if component.fact in found.facts
        }
        weights = present_weights(utilities, self._weights, on_missing=config.on_missing)
        needed = [*(["wer"] if config.gate_beta else []), *(self._constrained if config.on_missing == "drop" else [])]
        if weights is None or any(name not in found.facts for name in needed):
            reasons = "; ".join(f"{name}: {reason}" for name, reason in found.failures.items())
            return Score(value=None, raw=found.raw(), transcript=found.transcript, error=f"not measured: {reasons}")
        combine = weighted_harmonic_mean if config.combine == "harmonic" else weighted_sum
        value = combine(utilities, weights)
        if config.gate_beta:
            value = gate(value, found.facts["wer"], beta=config.gate_beta)
        return Score(value, found.raw(), found.transcript, parts=utilities)

    def _floor(self) -> Score:
        return self._at_floor({"empty_transcript": 1.0} | ({"wer": 1.0} if "wer" in self._wanted else {}))

    def _at_floor(self, facts: Mapping[str, float]) -> Score:
        return Score(FLOOR, facts, "", parts=dict.fromkeys(self._weights, FLOOR))
