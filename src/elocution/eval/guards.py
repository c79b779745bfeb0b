"""Is a policy collapsing, or gaming its reward? Values of a fixed set of sentences against those of the base model.

Pure functions: the loop decides when to look, and what an alarm does.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean
from typing import Any, Literal

import numpy as np

from elocution.measures.prosody import measure_prosody, repeated_share
from elocution.text.normalize import normalize
from elocution.types import FinishReason, Outcome, Rollout

__all__ = [
    "MONITORS",
    "Alarm",
    "AlarmLevel",
    "Monitor",
    "base_monitors",
    "check_monitors",
    "measure_monitors",
    "monitors_at",
    "worst_examples",
]


class AlarmLevel(StrEnum):
    """What an alarm asks for."""

    WARN = "warn"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class Monitor:
    """How far a value may move from the base's before it warns, and before it stops a run.

    `relative` distances are shares of the base's value, others are in the monitor's unit.
    """

    unit: str
    bad: Literal["lower", "higher", "either"]
    warn: float
    stop: float
    relative: bool = False

    def limits(self, base: float, level: AlarmLevel) -> tuple[float, float]:
        """The lowest and the highest value that raise no alarm of `level`; infinite where that side is not bad."""
        reach = (self.warn if level is AlarmLevel.WARN else self.stop) * (abs(base) if self.relative else 1.0)
        low = -np.inf if self.bad == "higher" else base - reach
        return low, np.inf if self.bad == "lower" else base + reach


MONITORS: Mapping[str, Monitor] = {
    "f0_spread": Monitor("semitones", "lower", 0.25, 0.5, relative=True),
    "energy_spread_db": Monitor("dB", "lower", 0.2, 0.4, relative=True),
    "level_db": Monitor("dB relative to full scale", "either", 4.0, 8.0),
    "clipped_share": Monitor("share of the samples", "higher", 0.002, 0.02),
    "rate": Monitor("letters and digits per second", "either", 0.15, 0.3, relative=True),
    "pause_share": Monitor("share of the clip", "higher", 0.05, 0.15),
    "silence_share": Monitor("share of the clip", "higher", 0.1, 0.25),
    "repeated_share": Monitor("share of four-code runs", "higher", 0.05, 0.2),
    "length_codes": Monitor("codes", "either", 0.25, 0.5, relative=True),
    "no_stop_share": Monitor("share of completions", "higher", 0.05, 0.2),
    "no_speech_share": Monitor("share of completions", "higher", 0.02, 0.1),
    "entropy": Monitor("nats per code", "lower", 0.7, 0.9, relative=True),
    "kl": Monitor("nats per code", "higher", 1.0, 3.0),
    "speaker_similarity": Monitor("cosine", "lower", 0.05, 0.15),
    "hacking_gap": Monitor("held-out WER less the reward's, fraction", "higher", 0.1, 0.25),
}


@dataclass(frozen=True, slots=True)
class Alarm:
    """A monitor that moved too far."""

    monitor: str
    level: AlarmLevel
    value: float
    base: float

    def __str__(self) -> str:
        rule = MONITORS[self.monitor]
        bound = rule.warn if self.level is AlarmLevel.WARN else rule.stop
        limit = f"{100 * bound:g} % of it" if rule.relative else f"{bound:g}"
        direction = "below" if self.value < self.base else "above"
        return f"{self.monitor} is {self.value:.3g} {rule.unit}, {direction} the base's {self.base:.3g} by more than {limit}"

    def row(self) -> dict[str, Any]:
        """The alarm as values that JSON can hold."""
        return {
            "monitor": self.monitor,
            "level": str(self.level),
            "value": self.value,
            "base": self.base,
            "text": str(self),
        }


def check_monitors(base: Mapping[str, float], now: Mapping[str, float]) -> list[Alarm]:
    """The alarms of the values `now` against those of the base model, those that stop a run first.

    A monitor that is missing on either side is not looked at; a value that is no number stops.
    """
    alarms = [
        Alarm(name, level, now[name], base[name])
        for name, rule in MONITORS.items()
        if name in base and name in now and (level := _level(rule, base[name], now[name])) is not None
    ]
    return sorted(alarms, key=lambda alarm: alarm.level is not AlarmLevel.STOP)


def _level(rule: Monitor, base: float, now: float) -> AlarmLevel | None:
    if not np.isfinite(now):
        return AlarmLevel.STOP
    for level in (AlarmLevel.STOP, AlarmLevel.WARN):
        low, high = rule.limits(base, level)
        if not low <= now <= high:
            return level
    return None


def base_monitors(before: Mapping[str, Any], first: Mapping[str, Any]) -> dict[str, float]:
    """What a run's monitors are held against: the rows of the evaluation before it, and of its first step.

    Empty if the run was begun without monitors.
    """
    return monitors_at(before, first) | {"kl": 0.0} if "monitors" in before else {}


def monitors_at(evaluation: Mapping[str, Any], metrics: Mapping[str, Any]) -> dict[str, float]:
    """All monitors of an evaluation's row and of the row of the step that came last; absent where not measured."""
    learners = {
        "kl": metrics.get("kl/k3"),
        "entropy": metrics.get("entropy/nats"),
        "hacking_gap": None if metrics.get("wer/mean") is None else evaluation["wer"] - metrics["wer/mean"],
    }
    shown: dict[str, float] = evaluation["monitors"]
    return shown | {name: value for name, value in learners.items() if value is not None}


def measure_monitors(rollouts: Sequence[Rollout]) -> dict[str, float]:
    """The monitors that completions show by themselves: means over those that have the value.

    Prosody is that of completions with sound that is heard; of none, those monitors are absent and `no_speech_share` is 1.

    Raises: ValueError if there is no completion.
    """
    if not rollouts:
        raise ValueError("monitors need at least one completion")
    columns: dict[str, list[float]] = {}
    for rollout in rollouts:
        for name, value in _facts_of(rollout).items():
            columns.setdefault(name, []).append(value)
    return {name: fmean(values) for name, values in columns.items()}


def worst_examples(alarm: Alarm, rollouts: Sequence[Rollout], *, count: int = 3) -> list[Rollout]:
    """The completions that are farthest on the alarm's side in its monitor, the farthest first.

    Where a monitor is none of a single completion, the first ones.
    """
    side = 1 if alarm.value >= alarm.base else -1
    return sorted(rollouts, key=lambda each: side * _facts_of(each).get(alarm.monitor, alarm.base), reverse=True)[
        :count
    ]


def _facts_of(rollout: Rollout) -> dict[str, float]:
    facts = {
        "length_codes": float(len(rollout.codes)),
        "repeated_share": repeated_share(rollout.codes),
        "no_stop_share": float(rollout.completion.finish_reason is FinishReason.LENGTH),
        "no_speech_share": float(rollout.outcome in (Outcome.EMPTY, Outcome.SILENT)),
    }
    if rollout.audio is None or facts["no_speech_share"]:
        return facts
    utterance = rollout.utterance
    prosody = measure_prosody(rollout.audio, normalize(utterance.text, utterance.language))
    for name in ("f0_spread", "energy_spread_db", "clipped_share", "rate", "pause_share", "silence_share"):
        value = getattr(prosody, name)
        if value is not None:
            facts[name] = value
    power = float(np.square(rollout.audio.samples, dtype=np.float64).mean())
    facts["level_db"] = 10 * float(np.log10(power))
    return facts
