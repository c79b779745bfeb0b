"""All checkpoints of a run on one set, by any number of processes; the best becomes the run's `best`."""

import functools
import json
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from elocution.assets import resolve_path
from elocution.config.tree import RunConfig
from elocution.eval.comparison import compare_evaluations
from elocution.eval.composite import Candidate, choose_best, composite
from elocution.eval.folder import read_clips, read_result
from elocution.eval.overlap import Overlap
from elocution.eval.run import Job, describe_plan, evaluate
from elocution.eval.sets import EvalSet
from elocution.eval.sources import load_model_source
from elocution.eval.targets import digest_of_model, run_checkpoints
from elocution.files import write_text_atomically
from elocution.train.checkpoint import point_best_at, verify_checkpoint
from elocution.train.run_directory import RunDirectory
from elocution.train.world import ALONE, World, failing_together

__all__ = ["Swept", "sweep"]

BASE = "base"

Progress = Callable[[str, int, int], None]
"""Called as (name of the checkpoint, clips scored by this process, clips that are its share)."""


@dataclass(frozen=True)
class Swept:
    """The results by name, `base` first, the candidates, and the one that was chosen, if any."""

    results: Mapping[str, Mapping[str, Any]]
    candidates: tuple[Candidate, ...]
    best: Candidate | None


def sweep(
    run: Path,
    eval_set: EvalSet,
    overlap: Overlap,
    config: RunConfig,
    folder: Path,
    *,
    device: torch.device,
    partial: bool = False,
    world: World = ALONE,
    on_progress: Progress | None = None,
) -> Swept | None:
    """Evaluates the base model and every checkpoint of `run` into folders of their own in `folder`; goes on where a call
    before it stopped. Process 0 chooses the best, points the run's `best` at it, writes `sweep.json` and returns it.

    Raises: EvaluationError if the run has no checkpoints; RunDirectoryError if it is being trained; as `evaluate`.
    """
    report = on_progress or (lambda name, done, total: None)
    with ExitStack() as stack:
        with failing_together(world):
            stack.enter_context(RunDirectory(run, resume=True, is_writer=world.rank == 0))
        with failing_together(world):
            models = {BASE: resolve_path(config.model.path)}
            models |= {path.name: verify_checkpoint(path).model_path for path in run_checkpoints(run)}
        results = {}
        for name, model in models.items():
            with failing_together(world):
                source = load_model_source(config, model, device)
                described = {"kind": "model", "name": name, "digest": digest_of_model(model)}
                job = Job(source, described, eval_set, overlap, partial)
                plan = describe_plan(job, config, draws=True)
            results[name] = evaluate(
                job,
                config,
                folder / name,
                plan,
                world=world,
                on_progress=functools.partial(report, name),
            )
        if world.rank:
            return None
        return _choose(run, folder, list(models), config)


def _choose(run: Path, folder: Path, names: list[str], config: RunConfig) -> Swept:
    results = {name: read_result(folder / name) for name in names}
    clips = {name: read_clips(folder / name) for name in names}
    candidates = []
    for name in names:
        if name == BASE:
            continue
        compared = compare_evaluations(
            (results[BASE], clips[BASE]),
            (results[name], clips[name]),
            bootstrap_samples=config.eval.bootstrap_samples,
            seed=config.seed,
        )
        value = composite(results[name]["summary"]["metrics"])
        candidates.append(Candidate(int(name.removeprefix("step_")), value, compared.fell))
    best = choose_best(candidates)
    if best is not None:
        point_best_at(run, verify_checkpoint(run / "checkpoints" / f"step_{best.step}"))
    swept = Swept(results, tuple(candidates), best)
    write_text_atomically(folder / "sweep.json", _describe(swept))
    return swept


def _describe(swept: Swept) -> str:
    rows = [
        asdict(candidate) | {"wer": swept.results[f"step_{candidate.step}"]["summary"]["metrics"]["wer"]}
        for candidate in swept.candidates
    ]
    best = None if swept.best is None else swept.best.step
    return json.dumps({"best": best, "checkpoints": rows}, indent=2, ensure_ascii=False) + "\n"
