"""A run directory -> one HTML page that needs nothing else: what changed, what it sounds like, curves, and a blind test."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, UndefinedError
from plotly.offline import get_plotlyjs

from elocution.errors import RunDirectoryError
from elocution.files import write_text_atomically
from elocution.report.charts import draw_charts, draw_guards, draw_others
from elocution.report.marks import mark_words
from elocution.report.media import EmbeddedClips, Media
from elocution.report.origins import compare_with_recipe, flatten
from elocution.report.run_reader import Row, RunRecord, read_run
from elocution.report.spectrogram import HEIGHT, WIDTH
from elocution.report.summary import is_share, summarise_run, summarise_sweeps

__all__ = ["render_page", "write_report"]


def write_report(run_path: Path) -> Path:
    """Writes `report.html` into the run directory and returns its path.

    Raises: RunDirectoryError if `run_path` is no run directory, or its records are of another kind; StorageError if it cannot be written.
    """
    target = run_path / "report.html"
    page = render_page(run_path, EmbeddedClips(run_path))
    write_text_atomically(target, page)
    return target


def render_page(run_path: Path, media: Media, *, state: str = "") -> str:
    """The page of a run with its clips from `media`; with the `state` of its records, it follows the run.

    Raises: RunDirectoryError if `run_path` is no run directory, or its records are of another kind.
    """
    run = read_run(run_path)
    try:
        return _render(run, media, state)
    except (LookupError, TypeError, AttributeError, UndefinedError) as error:
        raise RunDirectoryError(
            f"the records in {run_path} are not those of an elocution run: {type(error).__name__}: {error}"
        ) from error


def _render(run: RunRecord, media: Media, state: str) -> str:
    templates = Environment(
        loader=PackageLoader("elocution.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters |= {
        "percent": _percent,
        "number": _number,
        "points": _points,
        "signed": _signed,
        "is_share": is_share,
    }
    sides = _sides(run)
    prompts = _prompts(run, media, sides)
    return templates.get_template("report.html").render(
        run=run,
        state=state,
        media=media,
        picture_size=(WIDTH, HEIGHT),
        summaries=[summarise_run(run), *summarise_sweeps(run)],
        alarms=_alarms(run, media),
        evaluation_heads=_EVALUATION_HEADS,
        evaluation_rows=[_evaluation_row(row) for row in run.evaluations],
        sides=list(sides),
        prompts=prompts,
        blind=_blind_pairs(run.name, prompts),
        charts=draw_charts(run),
        guards=draw_guards(run),
        others=draw_others(run),
        mean_times=_mean_times(run),
        steps=_steps(run, media),
        differences=compare_with_recipe(run.path / "config.toml"),
        environment=list(flatten(run.environment)),
        plotly=get_plotlyjs(),
    )


def _percent(value: float | None) -> str:
    return "n/a" if value is None else f"{100 * value:.1f} %"


def _points(value: float) -> str:
    """A difference of shares, in percentage points."""
    return _with_minus(f"{100 * value:+.1f} points")


def _number(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.3f}"


def _signed(value: float, format: str) -> str:
    return _points(value) if format == "points" else _with_minus(f"{value:+.3f}")


def _with_minus(text: str) -> str:
    return text.replace("-", "\N{MINUS SIGN}")


def _sides(run: RunRecord) -> dict[str, Row]:
    """The evaluations that are heard side by side, by the words that name them; the best is not named twice."""
    before, best, last = run.before, run.best, run.last
    sides = {} if before is None else {"before": before}
    if last is not None:
        if best is not None and best["step"] != last["step"]:
            sides["best"] = best
        sides["last"] = last
    return sides


def _prompts(run: RunRecord, media: Media, sides: dict[str, Row]) -> list[dict[str, Any]]:
    """The fixed held-out sentences, each with what it sounded like on each side."""
    texts = {probe["utterance_id"]: probe["text"] for row in sides.values() for probe in row["probes"]}
    clips = {
        side: {probe["utterance_id"]: _clip(probe, media) for probe in row["probes"]} for side, row in sides.items()
    }
    prompts = []
    for utterance_id, text in texts.items():
        found = {side: clips[side].get(utterance_id) for side in sides}
        before, last = (_wer(found.get(side)) for side in ("before", "last"))
        change = None if before is None or last is None else last - before
        prompts.append({"id": utterance_id, "text": text, "clips": found, "change": change, "last": last})
    return prompts


def _wer(clip: Row | None) -> float | None:
    return None if clip is None else clip["wer"]


def _clip(row: Row, media: Media) -> Row:
    """A recorded completion with its player, and its transcript in words that are right and wrong."""
    marks = mark_words(row["text"], row["transcript"], row.get("language")) if row["transcript"] else []
    return row | {"player": media.clip(row["audio"]), "marks": marks}


def _blind_pairs(run: str, prompts: Sequence[Row]) -> dict[str, Any]:
    """What the blind test plays: the sentences with sound before training and now."""
    pairs = []
    for prompt in prompts:
        clips = [prompt["clips"].get(side) for side in ("before", "last")]
        sounds = [clip["player"].audio for clip in clips if clip is not None and clip["player"] is not None]
        if len(sounds) == 2:
            pairs.append({"utterance_id": prompt["id"], "text": prompt["text"], "sounds": sounds})
    return {"run": run, "sides": ["before", "last"], "pairs": pairs}


def _alarms(run: RunRecord, media: Media) -> list[Row]:
    """The alarms, each with the clips that it was raised for."""
    return [
        row | {"players": [{"text": name, "audio": name, "player": media.clip(name)} for name in row["audio"]]}
        for row in run.alarms
    ]


_EVALUATION_HEADS = (
    *("when", "WER", "95 % interval", "substituted", "deleted", "inserted", "median", "above 50 %", "runaway"),
    *("mean length", "scored"),
)


def _evaluation_row(row: Row) -> list[Any]:
    return [
        row["name"],
        _percent(row["wer"]),
        f"{_percent(row['wer_low'])} – {_percent(row['wer_high'])}",
        *(row["substitutions"], row["deletions"], row["insertions"]),
        *(_percent(row["median_wer"]), _percent(row["share_above_half"]), _percent(row["runaway_share"])),
        f"{row['mean_duration_s']:.2f} s",
        f"{row['num_scored']} of {row['num_sentences']}",
    ]


def _steps(run: RunRecord, media: Media) -> list[dict[str, Any]]:
    """Best and worst completion of each step, in the order of steps."""
    steps: dict[int, dict[str, Any]] = {}
    for row in run.rollouts:
        entry = steps.setdefault(row["step"], {"step": row["step"], "text": row["text"], "best": None, "worst": None})
        entry[row["kind"]] = _clip(row, media)
    return [steps[step] for step in sorted(steps)]


def _mean_times(run: RunRecord) -> list[tuple[str, float]]:
    stages = [("rollout", "time/rollout_s"), ("decode", "time/decode_s"), ("score", "time/score_s")]
    stages += [("update", "time/update_s"), ("whole step", "time/step_s")]
    measured = [(label, run.series(key)[1]) for label, key in stages]
    return [(label, sum(values) / len(values)) for label, values in measured if values]
