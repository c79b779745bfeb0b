"""`elocution eval`."""

import json
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from elocution.errors import EvaluationError

if TYPE_CHECKING:
    from elocution.config.tree import RunConfig
    from elocution.eval.overlap import Overlap
    from elocution.eval.run import Job
    from elocution.eval.sets import EvalSet
    from elocution.eval.targets import Target
    from elocution.train.world import World

__all__ = ["evaluate"]

HELD_OUT = "held-out"


def evaluate(
    target: Annotated[
        str | None,
        typer.Argument(
            help="A run, a checkpoint, a model folder, builtin:NAME or a config; a folder of recordings; a file of "
            "transcripts.",
            show_default=False,
        ),
    ] = None,
    set_name: Annotated[
        str, typer.Option("--set-name", help=f"{HELD_OUT}, a name of [eval.sets], or a file or folder.")
    ] = HELD_OUT,
    config: Annotated[
        Path | None,
        typer.Option(help="Config that says how to speak and listen. Default: the run's, or the embedded one."),
    ] = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Override one value; repeatable.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="Folder of the evaluation; a call that was cut short goes on there.")
    ] = None,
    language: Annotated[str | None, typer.Option(help="Language of texts whose own the set does not say.")] = None,
    sweep: Annotated[
        bool, typer.Option("--sweep", help="Every checkpoint of the run TARGET; the best becomes its `best`.")
    ] = False,
    partial: Annotated[
        bool, typer.Option("--partial", help="Leave out items that cannot be spoken or have no clip, and count them.")
    ] = False,
    keep_overlap: Annotated[
        bool, typer.Option("--keep-overlap", help="Keep texts that are also training prompts; they are counted.")
    ] = False,
    compare: Annotated[
        tuple[Path, Path] | None,
        typer.Option("--compare", metavar="A B", help="Folders of two evaluations: is B better than A?"),
    ] = None,
) -> None:
    """Measures a model, recordings or transcripts on a set, by protocols that others can compare with.

    Prints the rate of seed-tts-eval, and beside it what it hides; writes `result.json`, `clips.jsonl` and the audio. The exit
    status is 1 if a clip could not be scored.

    Examples:

    `elocution eval runs/mine --set-name held-out` measures the best checkpoint on the run's held-out prompts.

    `elocution eval recordings --set-name seedtts_testset/en/meta.lst` scores `recordings/ID.wav`.

    `elocution eval runs/mine --sweep` measures all checkpoints and points `best` at the best.

    `torchrun --nproc-per-node 4 -m elocution eval runs/mine --sweep` shares the clips among four processes.

    `elocution eval --compare evals/base evals/mine` says whether a difference is real.
    """
    if compare is not None:
        if target is not None:
            raise typer.BadParameter("--compare takes two evaluations that are there, and no TARGET")
        _compare(*compare)
        return
    if target is None:
        raise typer.BadParameter("name what to evaluate, or two evaluations with --compare")
    from elocution.eval.targets import find_target
    from elocution.text.language import check_language
    from elocution.train.launcher import find_place

    if language is not None:
        check_language(language)
    place = find_place(os.environ)
    if place.rank:
        logging.getLogger().setLevel(logging.WARNING)
    found = find_target(target, config, overrides or [])
    if sweep and found.run is None:
        raise EvaluationError(f"--sweep needs a run, and {target} is none")
    eval_set, overlap = _open_set(set_name, found.config, language, keep=keep_overlap)
    if place.rank == 0:
        left = "left out" if overlap.are_left_out else "kept"
        trained = f"; {len(overlap.ids)} are also training prompts, {left}" if overlap.ids else ""
        typer.echo(f"set {eval_set.name}: {len(eval_set.items)} items{trained}")
    from transformers.utils.logging import disable_progress_bar

    from elocution.train.device import choose_device
    from elocution.train.world import open_world

    disable_progress_bar()
    device = choose_device(found.config.train.device, place)
    with open_world(place, device=device, wait_s=found.config.train.wait_s) as world:
        if sweep:
            assert found.run is not None
            _sweep(found.run, eval_set, overlap, found.config, output, device, partial, world)
            return
        job, plan = _job(found, eval_set, overlap, device, partial)
        folder = output or _default_folder(found, eval_set.name)
        result = _evaluate(job, found.config, folder, plan, world)
    if result is not None:
        typer.echo(_result_text(result))
        typer.echo(f"the evaluation: {folder}")
        _fail_if_unscored(result)


def _open_set(name: str, config: "RunConfig", language: str | None, *, keep: bool) -> tuple["EvalSet", "Overlap"]:
    """The set that `name` means, without the texts of the config's training prompts unless `keep`."""
    from elocution.assets import resolve_path
    from elocution.data.prompts import load_prompts
    from elocution.eval.overlap import leave_out_trained
    from elocution.eval.sets import open_eval_set

    is_held_out = name == HELD_OUT and HELD_OUT not in config.eval.sets
    source = config.data.held_out if is_held_out else config.eval.sets.get(name, name)
    found = open_eval_set(source, language=language)
    trained = load_prompts(
        resolve_path(config.data.train),
        languages=config.data.languages,
        on_bad_row="skip",
        check_text=lambda utterance: None,
    )
    found, overlap = leave_out_trained(found, [(each.text, each.language) for each in trained.utterances], keep=keep)
    if not found.items:
        raise EvaluationError(f"every text of {source} is a training prompt; --keep-overlap measures it all the same")
    return (found.first(config.eval.sentences) if is_held_out else found), overlap


def _job(
    target: "Target", eval_set: "EvalSet", overlap: "Overlap", device: Any, partial: bool
) -> tuple["Job", dict[str, Any]]:
    from elocution.eval.run import Job, describe_plan
    from elocution.eval.sources import ClipSource, RecordingSource, TranscriptSource, load_model_source
    from elocution.eval.targets import TargetKind, digest_of_model

    described = {"kind": str(target.kind), "name": target.name}
    source: ClipSource
    if target.kind is TargetKind.MODEL:
        source = load_model_source(target.config, target.path, device)
        described["digest"] = digest_of_model(target.path)
    elif target.kind is TargetKind.RECORDINGS:
        source = RecordingSource(target.path)
    else:
        source = TranscriptSource(target.path)
    job = Job(source, described, eval_set, overlap, partial)
    return job, describe_plan(job, target.config, draws=target.kind is TargetKind.MODEL)


def _default_folder(target: "Target", set_name: str) -> Path:
    if target.run is not None:
        return target.run / "evaluations" / set_name / target.name
    return Path("evaluations") / set_name / target.name


def _evaluate(
    job: "Job", config: "RunConfig", folder: Path, plan: Mapping[str, Any], world: "World"
) -> dict[str, Any] | None:
    from elocution.eval.run import evaluate as run_evaluation

    with _bars(world) as draw:
        return run_evaluation(
            job, config, folder, plan, world=world, on_progress=lambda done, total: draw("clips", done, total)
        )


def _sweep(
    run: Path,
    eval_set: "EvalSet",
    overlap: "Overlap",
    config: "RunConfig",
    output: Path | None,
    device: Any,
    partial: bool,
    world: "World",
) -> None:
    from elocution.eval.sweep import sweep as run_sweep

    folder = output or run / "evaluations" / eval_set.name
    with _bars(world) as draw:
        swept = run_sweep(
            run,
            eval_set,
            overlap,
            config,
            folder,
            device=device,
            partial=partial,
            world=world,
            on_progress=draw,
        )
    if swept is None:
        return
    typer.echo(f"{'checkpoint':<12} {'WER':>7} {'95 % interval':>15} {'composite':>9}  worse than the base in")
    typer.echo(f"{'base':<12} {_rate(swept.results['base'])}")
    for one in swept.candidates:
        name = f"step_{one.step}"
        typer.echo(f"{name:<12} {_rate(swept.results[name])} {one.composite:9.3f}  {', '.join(one.fell)}".rstrip())
    if swept.best is None:
        typer.echo("every checkpoint is worse than the base in a guarded metric; `best` stays as it was")
    else:
        typer.echo(f"best: step {swept.best.step}; {run / 'best'} points at it")
    for result in swept.results.values():
        _fail_if_unscored(result)


@contextmanager
def _bars(world: "World") -> Iterator[Any]:
    """A function that draws a bar for each name; process 0 alone draws."""
    from tqdm import tqdm

    bars: dict[str, Any] = {}

    def draw(name: str, done: int, total: int) -> None:
        if world.rank:
            return
        if name not in bars:
            bars[name] = tqdm(total=total, desc=name, unit="clip")
        bars[name].update(done - bars[name].n)

    try:
        yield draw
    finally:
        for bar in bars.values():
            bar.close()


def _compare(one: Path, other: Path) -> None:
    from elocution.eval.comparison import compare_evaluations
    from elocution.eval.folder import read_clips, read_result
    from elocution.files import write_text_atomically

    found = compare_evaluations((read_result(one), read_clips(one)), (read_result(other), read_clips(other)))
    typer.echo(f"A: {one}\nB: {other}\n{found.num_pairs} items in both\n")
    typer.echo(f"{'':<20} {'A':>9} {'B':>9} {'B - A':>9}   95 % interval")
    for name, difference in found.differences.items():
        mark = "  fell" if name in found.fell else ""
        typer.echo(
            f"{name:<20} {difference.one:9.4f} {difference.other:9.4f} {difference.value:+9.4f}   "
            f"[{difference.low:+.4f}, {difference.high:+.4f}]{mark}"
        )
    for note in found.notes:
        typer.echo(f"note: {note}")
    fell = f" ({', '.join(found.fell)})" if found.fell else ""
    typer.echo(f"\nB against A: {found.verdict}{fell}")
    path = other / f"against-{one.resolve().name}.json"
    write_text_atomically(path, json.dumps(found.row(), indent=2) + "\n")
    typer.echo(f"the comparison: {path}")


def _rate(result: Mapping[str, Any]) -> str:
    wer = result["summary"]["metrics"]["wer"]
    interval = f"[{100 * wer['low']:.1f}, {100 * wer['high']:.1f}]"
    return f"{100 * wer['value']:5.1f} % {interval:>15}"


def _result_text(result: Mapping[str, Any]) -> str:
    summary, strict = result["summary"], result["summary"]["seed_tts"]
    lines = [f"{result['scored']} scored of {result['of']}"]
    if result["left_out"]:
        lines.append(f"{len(result['left_out'])} items left out")
    if strict["wer_percent"] is not None:
        by_seed = ", ".join(f"{value} %" for value in strict["wer_percent_by_seed"].values() if value is not None)
        lines.append(f"seed-tts-eval: WER {strict['wer_percent']} %  (by seed: {by_seed})")
    for label, edits in (("seed-tts rules", strict), ("numbers read", summary["spoken"])):
        if edits["clips"]:
            lines.append(
                f"{label}: {edits['substitutions']} substitutions, {edits['deletions']} deletions, "
                f"{edits['insertions']} insertions in {edits['reference_units']} units; median {100 * edits['median']:.1f} %, "
                f"above 50 %: {100 * edits['above_half_share']:.1f} %"
            )
    lines += ["", f"{'metric':<20} {'value':>9}   95 % interval         unit"]
    for name, metric in summary["metrics"].items():
        interval = f"[{metric['low']:.4f}, {metric['high']:.4f}]"
        lines.append(f"{name:<20} {metric['value']:9.4f}   {interval:<20}  {metric['unit']}")
    speed = result["speed"]
    if speed["real_time_factor"] is not None and result["plan"]["sampler"]:
        lines.append(
            f"\nreal-time factor {speed['real_time_factor']:.3f} spoken, {speed['real_time_factor_with_scoring']:.3f} with "
            f"scoring, batch size {speed['batch_size']}, {speed['processes']} processes"
        )
    return "\n".join(lines)


def _fail_if_unscored(result: Mapping[str, Any]) -> None:
    if unscored := result["unscored"]:
        name, reason = next(iter(unscored.items()))
        raise EvaluationError(
            f"{result['scored']} scored of {result['of']}: {len(unscored)} clips could not be scored, for example {name}: "
            f"{reason}; the same call tries them again"
        )
