"""A reward put together in the config: facts, each made a utility in [0, 1], combined into one number."""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Self

from elocution.config.tree import ComponentConfig, RewardConfig
from elocution.errors import ConfigError
from elocution.measures import check_recognisers
from elocution.measures.facts import FACTS, Findings, SpokenText, build_listener
from elocution.rewards.base import FLOOR, Derived, Known, Pending
from elocution.rewards.combine import (
    error_power,
    error_tanh,
    gate,
    present_weights,
    weighted_harmonic_mean,
    weighted_sum,
)
from elocution.rewards.pool import ScoringPool
from elocution.types import Outcome, Rollout, Score

__all__ = ["CompositeReward", "utility"]


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


class CompositeReward:
    """`combine` of the components' utilities, times `exp(-gate_beta * WER)`; in [0, 1], higher is better.

    `parts` are the utilities by component, `raw` the facts. A completion of which nothing was heard takes `FLOOR`.
    """

    def __init__(self, config: RewardConfig, pool: ScoringPool[SpokenText, Findings] | None = None) -> None:
        if not config.components:
            raise ConfigError('reward.type = "composite" needs at least one [reward.components.NAME]')
        self._config = config
        self._weights = {name: component.weight for name, component in config.components.items()}
        self._wanted = tuple(
            dict.fromkeys([c.fact for c in config.components.values()] + (["wer"] if config.gate_beta else []))
        )
        if unknown := sorted(set(self._wanted) - FACTS.keys()):
            raise ConfigError(f"reward.components: no measure {', '.join(unknown)}; known are {', '.join(FACTS)}")
        sources = {FACTS[name].by for name in self._wanted}
        check_recognisers(
            transcriber=config.asr if "recogniser" in sources else None,
            phoneme_scorer=config.nll if "phonemes" in sources else None,
        )
        self._pool = pool or ScoringPool(
            partial(build_listener, self._wanted, asr=config.asr, nll=config.nll),
            workers=config.workers,
            timeout_s=config.timeout_s,
        )

    def __enter__(self) -> Self:
        self._pool.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.__exit__(kind, error, trace)

    def __call__(self, rollouts: Sequence[Rollout]) -> list[Score]:
        clips = {index: clip for index, rollout in enumerate(rollouts) if (clip := _clip(rollout)) is not None}
        found = self._listen(clips)
        return [
            self._score(found[index]) if index in found else self._without_speech(rollout.outcome)
            for index, rollout in enumerate(rollouts)
        ]

    def start(self, rollout: Rollout) -> Pending[Score]:
        clip = _clip(rollout)
        if clip is None:
            return Known(self._without_speech(rollout.outcome))
        return Derived(self._pool.submit(clip), self._score)

    def _listen(self, clips: Mapping[int, SpokenText]) -> dict[int, Findings | Exception]:
        """What was found in each clip. Clips that share one audio object and text are listened to once.

        The longest come first, so that the workers finish together.
        """
        distinct = {(id(clip.audio), clip.text): clip for clip in clips.values()}
        keys = sorted(distinct, key=lambda key: -distinct[key].audio.duration_s)
        found = dict(zip(keys, self._pool.map([distinct[key] for key in keys]), strict=True))
        return {index: found[id(clip.audio), clip.text] for index, clip in clips.items()}

    def _score(self, found: Findings | Exception) -> Score:
        if isinstance(found, Exception):
            return Score(value=None, error=f"{type(found).__name__}: {found}")
        if found.transcript == "":
            return self._floor({**found.facts, "empty_transcript": 1.0})
        config = self._config
        utilities = {
            name: utility(component, found.facts[component.fact])
            for name, component in config.components.items()
            if component.fact in found.facts
        }
        weights = present_weights(utilities, self._weights, on_missing=config.on_missing)
        if weights is None or (config.gate_beta and "wer" not in found.facts):
            reasons = "; ".join(f"{name}: {reason}" for name, reason in found.failures.items())
            return Score(value=None, raw=found.facts, transcript=found.transcript, error=f"not measured: {reasons}")
        combine = weighted_harmonic_mean if config.combine == "harmonic" else weighted_sum
        value = combine(utilities, weights)
        if config.gate_beta:
            value = gate(value, found.facts["wer"], beta=config.gate_beta)
        return Score(value, found.facts, found.transcript, parts=utilities)

    def _without_speech(self, outcome: Outcome) -> Score:
        if outcome is Outcome.SPEECH:
            return Score(value=None, error="the completion is marked as speech but has no audio")
        return self._floor({"empty_transcript": 1.0} | ({"wer": 1.0} if "wer" in self._wanted else {}))

    def _floor(self, facts: Mapping[str, float]) -> Score:
        return Score(FLOOR, facts, "", parts=dict.fromkeys(self._weights, FLOOR))


def _clip(rollout: Rollout) -> SpokenText | None:
    """What is to be listened to, if there is speech."""
    if rollout.outcome is not Outcome.SPEECH or rollout.audio is None:
        return None
    return SpokenText(rollout.audio, rollout.utterance.text, rollout.utterance.language, rollout.codes)
