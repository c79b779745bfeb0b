"""Curves of a run as figures of Plotly, and in words for who cannot see them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elocution.eval.guards import MONITORS, AlarmLevel, base_monitors, monitors_at
from elocution.report.run_reader import RunRecord

__all__ = ["Chart", "draw_charts", "draw_guards", "draw_others"]

# Mid tones that read on a light and on a dark page, told apart by all kinds of colour vision; dashes tell them apart too.
_COLOURS = ("#2f81f7", "#c77700", "#2c9c5a", "#b35fc4")
_DASHES = ("solid", "dash", "dot", "dashdot")
_LIMITS = {AlarmLevel.WARN: "#c77700", AlarmLevel.STOP: "#d1242f"}


@dataclass(frozen=True)
class Chart:
    """A figure as Plotly's `data` and `layout`; `summary` is what it shows, in words."""

    key: str
    title: str
    unit: str
    summary: str
    figure: Mapping[str, Any]


@dataclass(frozen=True)
class _Curve:
    label: str
    steps: Sequence[int]
    values: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()


@dataclass(frozen=True)
class _Panel:
    title: str
    unit: str
    series: Sequence[tuple[str, str, float]]  # label, metric key, scale


_PANELS = (
    _Panel("Reward", "reward", [("mean", "reward/mean", 1), ("spread within groups", "reward/group_std", 1)]),
    _Panel("Word error rate", "%", [("training, reward recogniser", "wer/mean", 100)]),
    _Panel("Likelihood of the text", "nats per phoneme", [("NLL", "nll/mean", 1)]),
    _Panel("Distance from the base model", "nats per code", [("KL (k3)", "kl/k3", 1), ("KL, exact", "kl/exact", 1)]),
    _Panel("Entropy", "nats per code", [("policy", "entropy/nats", 1)]),
    _Panel("Length", "codes", [("mean", "length/mean_codes", 1)]),
    _Panel(
        "Completions without a measured word",
        "%",
        [
            ("runaway", "outcome/runaway_share", 100),
            ("silent", "outcome/silent_share", 100),
            ("empty", "outcome/empty_share", 100),
            ("scorer failed", "scores/unscored_share", 100),
        ],
    ),
    _Panel(
        "Time of a step",
        "s",
        [
            ("rollout", "time/rollout_s", 1),
            ("decode", "time/decode_s", 1),
            ("score", "time/score_s", 1),
            ("update", "time/update_s", 1),
        ],
    ),
)


def draw_charts(run: RunRecord) -> list[Chart]:
    """One chart for each group of metrics that was recorded, the rewards first: their sum, their parts, their constraints."""
    panels = [_PANELS[0], *_part_panels(run), *_PANELS[1:]]
    drawn = []
    for panel in panels:
        curves = [_Curve(label, *_scaled(run, key, scale)) for label, key, scale in panel.series]
        if panel.title == "Word error rate":
            curves.append(_held_out(run))
        curves = [curve for curve in curves if curve.steps]
        if curves:
            drawn.append(_chart(panel.title, panel.unit, curves))
    return drawn


def draw_guards(run: RunRecord) -> list[Chart]:
    """One chart for each monitor of a run with guards, with the limits that warn and that stop."""
    if run.before is None or not run.metrics:
        return []
    base = base_monitors(run.before, run.metrics[0])
    metrics = {row["step"]: row for row in run.metrics}
    rows = [row for row in run.evaluations if "monitors" in row]
    found = [(row["step"], monitors_at(row, metrics.get(row["step"], {}))) for row in rows]
    drawn = []
    for name, rule in MONITORS.items():
        known = [(step, monitors[name]) for step, monitors in found if name in monitors]
        if name not in base or not known:
            continue
        limits = {level: rule.limits(base[name], level) for level in AlarmLevel}
        curve = _Curve(name, [step for step, _ in known], [value for _, value in known])
        drawn.append(_chart(name, rule.unit, [curve], limits=limits))
    return drawn


def draw_others(run: RunRecord) -> list[Chart]:
    """One chart for each number that the other charts leave out."""
    shown = {key for panel in [*_PANELS, *_part_panels(run)] for _, key, _ in panel.series} | {"step"}
    keys = sorted({key for row in run.metrics for key in row} - shown)
    curves = [(key, _Curve(key, *run.series(key))) for key in keys]
    return [_chart(key, key.rpartition("_")[2], [curve]) for key, curve in curves if curve.steps]


def _part_panels(run: RunRecord) -> list[_Panel]:
    """Panels for the metrics that depend on the reward in the config."""
    titles = {"parts/": ("Parts of the reward", "utility"), "constraint/": ("Constraints", "measure, violation, price")}
    panels = []
    for prefix, (title, unit) in titles.items():
        keys = sorted({key for row in run.metrics for key in row if key.startswith(prefix)})
        if keys:
            panels.append(_Panel(title, unit, [(key.removeprefix(prefix), key, 1) for key in keys]))
    return panels


def _scaled(run: RunRecord, key: str, scale: float) -> tuple[list[int], list[float]]:
    steps, values = run.series(key)
    return steps, [scale * value for value in values]


def _held_out(run: RunRecord) -> _Curve:
    rows = sorted(run.evaluations, key=lambda row: int(row["step"]))
    return _Curve(
        "held out, judge, 95 %",
        [row["step"] for row in rows],
        [100 * row["wer"] for row in rows],
        [100 * row["wer_low"] for row in rows],
        [100 * row["wer_high"] for row in rows],
    )


def _chart(
    title: str,
    unit: str,
    curves: Sequence[_Curve],
    *,
    limits: Mapping[AlarmLevel, tuple[float, float]] | None = None,
) -> Chart:
    told = [
        f"{curve.label}: {curve.values[0]:.3g} at step {curve.steps[0]}, {curve.values[-1]:.3g} at step {curve.steps[-1]}"
        for curve in curves
    ]
    shapes = []
    for level, bounds in (limits or {}).items():
        for bound in bounds:
            if abs(bound) != float("inf"):
                line = {"color": _LIMITS[level], "width": 1, "dash": "dot"}
                shapes.append(
                    {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": bound, "y1": bound, "line": line}
                )
                told.append(f"{level} at {bound:.3g}")
    layout = {
        "xaxis": {"title": {"text": "step"}, "rangemode": "tozero"},
        "showlegend": len(curves) > 1,
        "shapes": shapes,
    }
    key = "chart-" + "".join(letter if letter.isalnum() else "-" for letter in title.lower())
    data = [_trace(curve, place) for place, curve in enumerate(curves)]
    return Chart(key, title, unit, "; ".join(told), {"data": data, "layout": layout})


def _trace(curve: _Curve, place: int) -> dict[str, Any]:
    trace: dict[str, Any] = {
        "type": "scatter",
        "mode": "lines+markers",
        "name": curve.label,
        "x": list(curve.steps),
        "y": list(curve.values),
        "line": {"color": _COLOURS[place % len(_COLOURS)], "dash": _DASHES[place % len(_DASHES)], "width": 2},
        "marker": {"size": 5},
        "cliponaxis": False,
        "hovertemplate": "%{y:.4g}",
    }
    if curve.low:
        trace["hovertemplate"] = "%{y:.4g} [%{customdata[0]:.4g}, %{customdata[1]:.4g}]"
        trace["customdata"] = [list(pair) for pair in zip(curve.low, curve.high, strict=True)]
        trace["error_y"] = {
            "type": "data",
            "symmetric": False,
            "array": [high - value for high, value in zip(curve.high, curve.values, strict=True)],
            "arrayminus": [value - low for low, value in zip(curve.low, curve.values, strict=True)],
            "thickness": 1.2,
        }
    return trace
