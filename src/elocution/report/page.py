"""A run directory -> one HTML page that needs nothing else: curves, word error rates, and audio to listen to."""

import base64
import io
from pathlib import Path
from typing import Any

import soundfile
from jinja2 import Environment, PackageLoader, StrictUndefined, UndefinedError

from elocution.errors import RunDirectoryError
from elocution.files import write_text_atomically
from elocution.report.charts import draw_charts
from elocution.report.run_reader import Row, RunRecord, read_run

__all__ = ["write_report"]


def write_report(run_path: Path) -> Path:
    """Writes `report.html` into the run directory and returns its path.

    Raises: RunDirectoryError if `run_path` is no run directory, or its records are of another kind; StorageError if it cannot be written.
    """
    run = read_run(run_path)
    try:
        page = _render(run)
    except (LookupError, TypeError, AttributeError, UndefinedError) as error:
        raise RunDirectoryError(
            f"the records in {run_path} are not those of an elocution run: {type(error).__name__}: {error}"
        ) from error
    target = run_path / "report.html"
    write_text_atomically(target, page)
    return target


def _render(run: RunRecord) -> str:
    templates = Environment(
        loader=PackageLoader("elocution.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters |= {"percent": _percent, "number": _number}
    before, after = run.evaluation("before"), run.evaluation("after")
    return templates.get_template("report.html").render(
        run=run,
        name=run.path.resolve().name,
        verdict=_verdict(before, after),
        before=before,
        after=after,
        evaluations=run.evaluations,
        charts=draw_charts(run),
        probes=_probes(run, before, after),
        steps=_steps(run),
        mean_times=_mean_times(run),
    )


def _percent(value: float | None) -> str:
    return "n/a" if value is None else f"{100 * value:.1f} %"


def _number(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.3f}"


def _verdict(before: Row | None, after: Row | None) -> str:
    if before is None:
        return "No held-out evaluation yet."
    if after is None:
        return (
            f"Held-out word error rate before training: {_percent(before['wer'])}. There is no evaluation after it yet."
        )
    change = f"Held-out word error rate: {_percent(before['wer'])} before, {_percent(after['wer'])} after."
    if after["wer_high"] < before["wer_low"]:
        return f"{change} The 95 % intervals do not overlap: better."
    if after["wer_low"] > before["wer_high"]:
        return f"{change} The 95 % intervals do not overlap: worse."
    return f"{change} The 95 % intervals overlap: no difference is shown."


def _probes(run: RunRecord, before: Row | None, after: Row | None) -> list[dict[str, Any]]:
    """The fixed held-out sentences, each with what it sounded like before and after."""
    pairs: dict[str, dict[str, Any]] = {}
    for label, evaluation in (("before", before), ("after", after)):
        for probe in evaluation["probes"] if evaluation else []:
            row = pairs.setdefault(probe["utterance_id"], {"text": probe["text"], "before": None, "after": None})
            row[label] = probe | {"player": _embed(run.path, probe["audio"])}
    return list(pairs.values())


def _steps(run: RunRecord) -> list[dict[str, Any]]:
    """Best and worst completion of each step, in the order of steps."""
    steps: dict[int, dict[str, Any]] = {}
    for row in run.rollouts:
        entry = steps.setdefault(row["step"], {"step": row["step"], "text": row["text"], "best": None, "worst": None})
        entry[row["kind"]] = row | {"player": _embed(run.path, row["audio"])}
    return [steps[step] for step in sorted(steps)]


def _mean_times(run: RunRecord) -> list[tuple[str, float]]:
    stages = [("rollout", "time/rollout_s"), ("decode", "time/decode_s"), ("score", "time/score_s")]
    stages += [("update", "time/update_s"), ("whole step", "time/step_s")]
    measured = [(label, run.series(key)[1]) for label, key in stages]
    return [(label, sum(values) / len(values)) for label, values in measured if values]


def _embed(run: Path, audio: str | None) -> str | None:
    """The clip as a data URI, losslessly compressed; None where there is no sound that can be read."""
    if audio is None:
        return None
    try:
        samples, sample_rate = soundfile.read(run / audio, dtype="int16")
    except soundfile.SoundFileError:  # missing or damaged
        return None
    buffer = io.BytesIO()
    soundfile.write(buffer, samples, sample_rate, format="FLAC", subtype="PCM_16")
    return "data:audio/flac;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")
