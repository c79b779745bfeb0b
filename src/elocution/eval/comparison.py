"""Is B better than A? A paired difference with its interval, and no "better" where anything else fell."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

from elocution.errors import EvaluationError
from elocution.eval.bootstrap import bootstrap_difference
from elocution.eval.clips import ClipResult
from elocution.eval.metrics import METRICS, tabulate

__all__ = ["GUARDED", "Comparison", "Difference", "Guarded", "Verdict", "compare_evaluations", "fallen"]

MIN_SEEDS = 3
PRIMARY = "wer"


@dataclass(frozen=True, slots=True)
class Guarded:
    """A metric that a gain must not be paid with: which way is bad, and how much of it is let pass.

    What is let pass is `relative` of A's value or `absolute` in the metric's unit, whichever is more.
    """

    bad: Literal["lower", "higher", "either"]
    relative: float = 0.0
    absolute: float = 0.0


GUARDED: Mapping[str, Guarded] = {
    "speaker_similarity": Guarded("lower"),
    "quality": Guarded("lower"),
    "distillmos": Guarded("lower"),
    "dnsmos": Guarded("lower"),
    "hit_limit_share": Guarded("higher"),
    "no_speech_share": Guarded("higher"),
    "above_half_share": Guarded("higher"),
    "f0_spread": Guarded("lower", relative=0.1),
    "energy_spread_db": Guarded("lower", relative=0.1),
    "rate": Guarded("either", relative=0.1),
    "silence_share": Guarded("either", relative=0.1, absolute=0.03),
    "pause_share": Guarded("higher", relative=0.1, absolute=0.02),
    "clipped_share": Guarded("higher", absolute=0.001),
    "repeated_share": Guarded("higher", relative=0.1, absolute=0.01),
}


class Verdict(StrEnum):
    """What may be said of B against A."""

    BETTER = "better"
    WORSE = "worse"
    NO_DIFFERENCE = "no difference shown"
    GUARD_FELL = "not better: a guarded metric fell"
    FEW_SEEDS = "not shown: too few seeds"


@dataclass(frozen=True, slots=True)
class Difference:
    """A metric of A and of B over the clips that both have, and the 95 % interval of B less A."""

    one: float
    other: float
    low: float
    high: float

    @property
    def value(self) -> float:
        return self.other - self.one

    @property
    def is_shown(self) -> bool:
        """Whether the interval leaves zero out."""
        return self.low > 0 or self.high < 0


@dataclass(frozen=True)
class Comparison:
    """All differences, which guarded metrics fell, and what follows."""

    differences: Mapping[str, Difference]
    fell: tuple[str, ...]
    verdict: Verdict
    num_pairs: int
    num_unpaired: int
    notes: tuple[str, ...]

    def row(self) -> dict[str, Any]:
        """The comparison as values that JSON can hold."""
        return {
            "verdict": str(self.verdict),
            "primary": PRIMARY,
            "pairs": self.num_pairs,
            "unpaired": self.num_unpaired,
            "fell": list(self.fell),
            "notes": list(self.notes),
            "differences": {
                name: {"a": one.one, "b": one.other, "difference": one.value, "low": one.low, "high": one.high}
                for name, one in self.differences.items()
            },
        }


def compare_evaluations(
    one: tuple[Mapping[str, Any], Sequence[ClipResult]],
    other: tuple[Mapping[str, Any], Sequence[ClipResult]],
    *,
    bootstrap_samples: int = 2000,
    seed: int = 0,
) -> Comparison:
    """Compares B with A, each a result and its clips, over the items that both scored.

    The verdict is on the corpus error rate with numbers read. "Better" and "worse" need three sampling seeds on both sides
    and an interval without zero; "better" also that no guarded metric fell: none has an interval on its bad side and a
    difference beyond what is let pass.

    Raises: EvaluationError if the two were measured in different ways, or share no item.
    """
    plans = one[0]["plan"], other[0]["plan"]
    _check_alike(*plans)
    scored = [[clip for clip in clips if clip.is_scored] for _, clips in (one, other)]
    ids = [{clip.id for clip in clips} for clips in scored]
    shared = sorted(ids[0] & ids[1])
    if not shared:
        raise EvaluationError("the two evaluations share no scored item")
    seeds = [sorted({clip.seed for clip in clips}) for clips in scored]
    differences = {}
    for name, metric in METRICS.items():
        tables = [tabulate(clips, metric, shared, own) for clips, own in zip(scored, seeds, strict=True)]
        values = [table.value for table in tables]
        if values[0] is None or values[1] is None:
            continue
        low, high = bootstrap_difference(*tables, samples=bootstrap_samples, seed=seed)
        differences[name] = Difference(values[0], values[1], low, high)
    if PRIMARY not in differences:
        raise EvaluationError("no text of the two evaluations can be compared as it is spoken")
    fell = fallen(differences)
    return Comparison(
        differences,
        fell,
        _verdict(differences[PRIMARY], fell, min(map(len, seeds))),
        len(shared),
        len(ids[0] ^ ids[1]),
        tuple(_notes(plans, differences, len(ids[0] ^ ids[1]))),
    )


def fallen(differences: Mapping[str, Difference]) -> tuple[str, ...]:
    """The guarded metrics that got worse by more than is let pass, with an interval that leaves zero out."""
    return tuple(name for name, rule in GUARDED.items() if name in differences and _fell(differences[name], rule))


def _fell(difference: Difference, rule: Guarded) -> bool:
    is_bad = {"lower": difference.value < 0, "higher": difference.value > 0, "either": True}[rule.bad]
    passes = max(rule.relative * abs(difference.one), rule.absolute)
    return is_bad and difference.is_shown and abs(difference.value) > passes


def _verdict(primary: Difference, fell: Sequence[str], num_seeds: int) -> Verdict:
    if not primary.is_shown:
        return Verdict.NO_DIFFERENCE
    if num_seeds < MIN_SEEDS:
        return Verdict.FEW_SEEDS
    if primary.value > 0:
        return Verdict.WORSE
    return Verdict.GUARD_FELL if fell else Verdict.BETTER


def _check_alike(one: Mapping[str, Any], other: Mapping[str, Any]) -> None:
    """Raises: EvaluationError if numbers of the two mean different things."""
    for key in ("recogniser", "normalizers", "measures"):
        if one[key] != other[key]:
            raise EvaluationError(
                f"the two evaluations differ in {key}: {one[key]} and {other[key]}; evaluate both in the same way"
            )
    if one["set"]["name"] != other["set"]["name"]:
        raise EvaluationError(
            f"the two evaluations are of different sets: {one['set']['name']} and {other['set']['name']}"
        )


def _notes(
    plans: tuple[Mapping[str, Any], Mapping[str, Any]], differences: Mapping[str, Difference], num_unpaired: int
) -> list[str]:
    one, other = plans
    notes = []
    if one["set"]["digest"] != other["set"]["digest"]:
        notes.append("the sets differ; only items with the same id count")
    if num_unpaired:
        notes.append(f"{num_unpaired} items are scored in one of the two alone, and do not count")
    if one["sampler"] != other["sampler"]:
        notes.append("the samplers differ")
    measured = {"likeness": ("speaker_similarity",), "quality": ("quality", "distillmos", "dnsmos")}
    if absent := [kind for kind, names in measured.items() if not differences.keys() & set(names)]:
        notes.append(f"not measured, so not guarded: {', '.join(absent)}")
    return notes
