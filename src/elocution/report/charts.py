"""Curves of a run as inline SVG."""

import io
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from elocution.report.run_reader import RunRecord

__all__ = ["Chart", "draw_charts"]

# Mid tones that read on a light and on a dark page; text and axes are grey for the same reason.
_INK = "#7d8590"
_COLOURS = ("#2f81f7", "#d29922", "#3fb950", "#db6d28")


@dataclass(frozen=True)
class Chart:
    """A finished picture with the words that stand beside it."""

    title: str
    summary: str
    svg: str


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
    """One chart for each group of metrics that was recorded."""
    return [_draw(panel, run) for panel in _PANELS if any(run.series(key)[0] for _, key, _ in panel.series)]


def _draw(panel: _Panel, run: RunRecord) -> Chart:
    figure = Figure(figsize=(4.6, 2.5), layout="constrained")
    axes = figure.subplots()
    told = []
    for (label, key, scale), colour in zip(panel.series, _COLOURS, strict=False):
        steps, values = run.series(key)
        if steps:
            scaled = [scale * value for value in values]
            axes.plot(steps, scaled, label=label, color=colour, linewidth=1.8, marker="o", markersize=2.5)
            told.append(f"{label}: {scaled[0]:.3g} at step {steps[0]}, {scaled[-1]:.3g} at step {steps[-1]}")
    if panel.title == "Word error rate" and run.evaluations:
        held_out = [
            (row["step"], 100 * row["wer"], 100 * row["wer_low"], 100 * row["wer_high"]) for row in run.evaluations
        ]
        steps = [row[0] for row in held_out]
        means = [row[1] for row in held_out]
        axes.errorbar(
            steps,
            means,
            yerr=[[row[1] - row[2] for row in held_out], [row[3] - row[1] for row in held_out]],
            label="held out, judge, 95 %",
            color=_COLOURS[1],
            marker="s",
            markersize=4,
            capsize=3,
            linewidth=1.2,
        )
        told.append(f"held out: {means[0]:.1f} at step {steps[0]}, {means[-1]:.1f} at step {steps[-1]}")
    axes.set_xlabel("step", color=_INK, fontsize=8)
    axes.set_ylabel(panel.unit, color=_INK, fontsize=8)
    axes.tick_params(colors=_INK, labelsize=8)
    axes.grid(alpha=0.25)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(_INK)
    if len(axes.get_legend_handles_labels()[0]) > 1:
        axes.legend(fontsize=7, frameon=False, labelcolor=_INK)
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    svg = buffer.getvalue()
    return Chart(panel.title, "; ".join(told), svg[svg.index("<svg") :])
