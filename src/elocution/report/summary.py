"""What a run changed, by how much, with which certainty: the words and numbers at the top of a page."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from elocution.errors import ElocutionError
from elocution.eval.bootstrap import bootstrap_difference
from elocution.eval.comparison import Verdict, compare_evaluations
from elocution.eval.folder import read_clips, read_result
from elocution.eval.guards import MONITORS, base_monitors, check_monitors, monitors_at
from elocution.eval.metrics import METRICS, Table
from elocution.report.run_reader import Row, RunRecord

__all__ = ["Line", "Summary", "is_share", "summarise_run", "summarise_sweeps"]

_SAMPLES = 2000  # of the bootstrap
_SHARES = ("_share", "wer", "hacking_gap")


@dataclass(frozen=True, slots=True)
class Line:
    """One number before and after; `low` and `high` bound the difference where the records can tell."""

    name: str
    unit: str
    before: float
    after: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Summary:
    """A verdict, what it rests on, and the numbers behind it. `tone` says whether it is good news."""

    title: str
    verdict: str
    tone: Literal["good", "bad", "open"]
    basis: str
    lines: tuple[Line, ...] = ()


def is_share(name: str) -> bool:
    """Whether the number of this name is a fraction that is shown in percent."""
    return name.endswith(_SHARES)


def summarise_run(run: RunRecord) -> Summary:
    """The held-out evaluations of the base model and of the newest weights, which a run makes by itself."""
    title = "Held-out sentences, within the run"
    before, last = run.before, run.last
    if before is None:
        return Summary(title, "No held-out evaluation yet.", "open", "The run makes one before its first step.")
    heard_by = f"Heard by {before['judge']}, which the reward does not use; {before['num_sentences']} sentences, "
    heard_by += f"sampled at temperature {before['temperature']:g} with one seed"
    if last is None:
        return Summary(
            title, "There is no evaluation after training yet.", "open", f"{heard_by}.", _lines(before, before)
        )
    interval = _paired_interval(before, last)
    fell = _fallen(run, before, last)
    verdict, tone = _verdict(interval, fell)
    basis = f"{heard_by}; the interval is a 95 % bootstrap over pairs of the same sentence."
    if last["name"] != "after":
        basis += f" The run is not over: this is its evaluation after step {last['step']}."
    basis += f" For a claim with three seeds: elocution eval {run.path} --sweep."
    return Summary(title, verdict, tone, basis, _lines(before, last, interval))


def _paired_interval(before: Row, after: Row) -> tuple[float, float] | None:
    """95 % of the difference in word error rate; None if the rows do not say the edits of each sentence."""
    pairs = list(zip(before.get("sentences", ()), after.get("sentences", ()), strict=False))
    scored = [(one, other) for one, other in pairs if one is not None and other is not None]
    if not scored:
        return None
    tables = [_table([pair[side] for pair in scored]) for side in (0, 1)]
    return bootstrap_difference(tables[0], tables[1], samples=_SAMPLES, seed=0)


def _table(edits_and_units: Sequence[Sequence[int]]) -> Table:
    sums = np.array(edits_and_units, dtype=float)
    return Table(sums[:, :1], sums[:, 1:])


def _fallen(run: RunRecord, before: Row, after: Row) -> list[str]:
    """The monitors that are past a limit in `after`; none where the run did not watch them."""
    if not run.metrics or "monitors" not in before or "monitors" not in after:
        return []
    newest = [row for row in run.metrics if row["step"] <= after["step"]] or list(run.metrics[:1])
    alarms = check_monitors(base_monitors(before, run.metrics[0]), monitors_at(after, newest[-1]))
    return [alarm.monitor for alarm in alarms]


def _verdict(interval: tuple[float, float] | None, fell: Sequence[str]) -> tuple[str, Literal["good", "bad", "open"]]:
    if interval is None:
        return "Not shown: these records do not hold the edits of each sentence.", "open"
    low, high = interval
    if low <= 0 <= high:
        return "No difference is shown.", "open"
    if low > 0:
        return "Worse: more words are wrong.", "bad"
    if fell:
        return f"Not better: fewer words are wrong, but a guard fell ({', '.join(fell)}).", "bad"
    return "Better: fewer words are wrong.", "good"


def _lines(before: Row, after: Row, interval: tuple[float, float] | None = None) -> tuple[Line, ...]:
    low, high = interval or (None, None)
    lines = [Line("wer", "edits per word", before["wer"], after["wer"], low, high)]
    plain = {
        "median_wer": "of the sentences",
        "above_half_share": "of the sentences",
        "runaway_share": "of the completions",
        "mean_duration_s": "seconds",
    }
    keys = {"above_half_share": "share_above_half"}
    lines += [
        Line(name, unit, before[keys.get(name, name)], after[keys.get(name, name)]) for name, unit in plain.items()
    ]
    one, other = before.get("monitors", {}), after.get("monitors", {})
    lines += [
        Line(name, MONITORS[name].unit, one[name], other[name]) for name in MONITORS if name in one and name in other
    ]
    return tuple(lines)


def summarise_sweeps(run: RunRecord) -> list[Summary]:
    """The best checkpoint against the base model by each protocol evaluation that was made of the run's checkpoints."""
    return [summary for path in sorted(run.path.glob("evaluations/*/sweep.json")) for summary in _summarise_sweep(path)]


def _summarise_sweep(path: Path) -> Iterator[Summary]:
    folder, best = path.parent, json.loads(path.read_text(encoding="utf-8"))["best"]
    if best is None:
        verdict = "No checkpoint was chosen: in each of them a guarded metric fell."
        yield Summary(f"Evaluation on {folder.name}", verdict, "bad", f"See {path}.")
        return
    try:
        sides = [(read_result(each), read_clips(each)) for each in (folder / "base", folder / f"step_{best}")]
        found = compare_evaluations(sides[0], sides[1])
    except ElocutionError as error:
        yield Summary(f"Evaluation on {folder.name}", "It cannot be compared.", "open", str(error))
        return
    plan = sides[0][0]["plan"]
    tones: dict[Verdict, Literal["good", "bad"]] = {
        Verdict.BETTER: "good",
        Verdict.WORSE: "bad",
        Verdict.GUARD_FELL: "bad",
    }
    basis = (
        f"Step {best} against the base model on {found.num_pairs} items of {folder.name}, {len(plan['seeds'])} seeds; "
    )
    basis += "intervals are 95 % bootstraps over utterances and seeds."
    if notes := [*(f"fell: {name}" for name in found.fell), *found.notes]:
        basis += f" {'; '.join(notes)}."
    lines = tuple(
        Line(name, METRICS[name].unit, one.one, one.other, one.low, one.high) for name, one in found.differences.items()
    )
    verdict = f"{str(found.verdict)[0].upper()}{str(found.verdict)[1:]}."
    yield Summary(f"Evaluation on {folder.name}", verdict, tones.get(found.verdict, "open"), basis, lines)
