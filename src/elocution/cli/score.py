"""`elocution score PATH`."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from elocution.errors import DataError

if TYPE_CHECKING:
    from elocution.eval.separability import ScoredClip

__all__ = ["score"]


def score(
    path: Annotated[
        str,
        typer.Argument(
            help="A folder of recordings with texts beside them, or a manifest (.jsonl: audio, text, optionally prompt_audio, description, emotion, control)."
        ),
    ],
    config: Annotated[
        Path | None, typer.Option(help="Config whose [reward] listens. Default: the embedded one.")
    ] = None,
    overrides: Annotated[list[str] | None, typer.Option("--set", help="section.key=value; repeatable.")] = None,
    limit: Annotated[int, typer.Option(help="Clips to score, the first of the source; 0 means all.", min=0)] = 64,
    output: Annotated[Path | None, typer.Option(help="Also write every score, as JSON lines.")] = None,
) -> None:
    """Runs the reward over recordings, as they are and spoiled in known ways.

    Where the rows of a manifest say in `control` what is wrong with a clip ("noisy", "wrong speaker"), and leave it out where
    nothing is, the recordings are compared as they are, and nothing is spoiled.

    Prints a table of the clips, how well the reward tells the clean ones from the spoiled ones (AUC: 1 separates, 0.5 does
    not), how many are at its upper end, how its parts correlate, and what a clip costs. Try it before a night of training: a
    reward that cannot tell noise from speech will teach noise.
    """
    from elocution.audio import read_audio
    from elocution.config.load import load_config
    from elocution.data.clips import open_clips
    from elocution.eval.separability import score_clips, score_labelled, summarize
    from elocution.files import write_text_atomically
    from elocution.rewards import load_reward
    from elocution.types import Utterance

    clips = open_clips(path)
    count = min(limit, len(clips.ids)) if limit else len(clips.ids)
    if count < 2:
        raise DataError(f"{path} has {count} clips; at least 2 are needed, the words of one are another's wrong ones")
    loaded = [clips[index] for index in range(count)]
    sounds = [
        (
            Utterance(clip.id, clip.text, clip.language, clip.voice, clip.description, emotion=clip.emotion),
            read_audio(clip.audio),
        )
        for clip in loaded
    ]
    controls = [clip.control for clip in loaded]
    with load_reward(load_config(config, overrides or []).reward) as reward:
        scored, listening_s = score_labelled(reward, sounds, controls) if any(controls) else score_clips(reward, sounds)
    summary = summarize(scored, listening_s)
    for clip in scored:
        if clip.control == "clean":
            typer.echo(_clip_line(clip))
    typer.echo(_summary_text(summary))
    if output is not None:
        write_text_atomically(output, "".join(json.dumps(_row(clip)) + "\n" for clip in scored))
        typer.echo(f"scores of all {len(summary['controls'])} controls: {output}")


def _clip_line(clip: "ScoredClip") -> str:
    value = "unscored" if clip.score.value is None else f"{clip.score.value:8.3f}"
    facts = "  ".join(f"{name} {number:.3g}" for name, number in clip.score.raw.items() if "/" not in name)
    return f"{value}  {clip.id}  {facts}  {clip.score.error or clip.score.transcript or ''}"


def _summary_text(summary: dict[str, Any]) -> str:
    rates = dict.fromkeys(name for row in summary["controls"].values() for name in row["error_rates"])
    heads = "".join(f"  {name.replace('_', ' ')}" for name in rates)
    lines = ["", f"{'control':<12} {'clips':>5} {'unscored':>8} {'mean':>7} {'std':>7} {'AUC':>6}{heads}"]
    for name, row in summary["controls"].items():
        numbers = [_number(row[key], width) for key, width in (("mean", 7), ("std", 7), ("auc_of_clean", 6))]
        found = [_percent(row["error_rates"].get(rate), max(len(rate), 4) + 2) for rate in rates]
        lines.append(f"{name:<12} {row['clips']:>5} {row['unscored']:>8} {' '.join(numbers)}{''.join(found)}")
    lines.append("AUC: the chance that a clean clip scores higher; 1 separates, 0.5 does not")
    if rates:
        lines.append(f"{', '.join(rates)}: edits of all clips over units of all texts")
    lines.append(f"\nclean clips at the upper end: {_percent(summary['saturated_share'], 0)}")
    lines += [f"rank correlation {pair}: {value:.2f}" for pair, value in summary["correlations"].items()]
    if summary["seconds_per_clip"] is not None:
        lines.append(f"{summary['seconds_per_clip']:.3f} s a clip, {summary['times_real_time']:.1f}x real time")
    return "\n".join(lines)


def _number(value: float | None, width: int) -> str:
    return f"{'-':>{width}}" if value is None else f"{value:>{width}.3f}"


def _percent(share: float | None, width: int) -> str:
    return f"{'-':>{width}}" if share is None else f"{share:>{width}.0%}"


def _row(clip: "ScoredClip") -> dict[str, Any]:
    return {
        "id": clip.id,
        "control": clip.control,
        "text": clip.text,
        "value": clip.score.value,
        "error": clip.score.error,
        "transcript": clip.score.transcript,
        "measures": dict(clip.score.raw),
        "parts": dict(clip.score.parts),
    }
