"""`elocution train`."""

import json
import logging
import os
from contextlib import nullcontext
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

__all__ = ["train"]


def train(
    config: Annotated[
        Path | None, typer.Argument(help="TOML file; omitted, the embedded tiny recipe runs.", show_default=False)
    ] = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Override one value; repeatable.")
    ] = None,
    reward_config: Annotated[
        Path | None,
        typer.Option(
            "--reward-config", "--reward_config", help="JSON or TOML file with keys of [reward]: docs/llasa.md."
        ),
    ] = None,
    model_path: Annotated[
        str | None,
        typer.Option("--model-name-or-path", "--model_name_or_path", help="Short for --set model.path=…"),
    ] = None,
    dataset: Annotated[str | None, typer.Option("--dataset", help="Short for --set data.train=…")] = None,
    output_dir: Annotated[
        Path | None,
        typer.Option(
            "--output-dir", "--output_dir", help="Run directory; must be new or empty. Default: runs/NAME-TIME."
        ),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in --output-dir.")] = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Look up every part and the prompts, print the resolved config, the batch arithmetic and the memory it takes; "
            "load no model.",
        ),
    ] = False,
) -> None:
    """Trains a policy with GRPO and writes a run directory.

    Examples:

    `elocution train` runs the embedded tiny recipe on a CPU.

    `elocution train my.toml --set train.steps=50 --output-dir runs/mine`

    `elocution train configs/llasa/grpo.toml --reward-config reward.json --set model.path=Llasa-1B`

    `elocution train --resume --output-dir runs/mine` continues it with the config it was started with.

    `torchrun --nproc-per-node 2 -m elocution train my.toml` shares each step among two processes: docs/distributed.md.

    SIGTERM or Ctrl-C ends the run at the next stage with a checkpoint; `--resume` continues it.
    """
    from elocution.config.arithmetic import describe_batch, list_absent, list_doubts
    from elocution.config.load import dump_config, load_config
    from elocution.config.reward_file import read_reward_file

    if resume and output_dir is None:
        raise typer.BadParameter("--resume needs --output-dir, the run to continue")
    if resume and config is None and output_dir is not None and (output_dir / "config.toml").is_file():
        config = output_dir / "config.toml"
    named = {"model.path": model_path, "data.train": dataset}
    earlier = read_reward_file(reward_config) if reward_config else []
    earlier += [f"{key}={json.dumps(value)}" for key, value in named.items() if value is not None]
    resolved = load_config(config, [*earlier, *(overrides or [])])
    for doubt in list_doubts(resolved):
        typer.echo(f"note: {doubt}", err=True)
    from elocution.train.launcher import find_place

    place = find_place(os.environ)
    is_first = place.rank == 0
    if dry_run:
        if is_first:
            from elocution.train.dry_run import check_parts, check_prompts
            from elocution.train.memory_plan import describe_memory

            absent = check_parts(resolved)
            prompts = check_prompts(resolved)
            typer.echo(dump_config(resolved))
            typer.echo(describe_batch(resolved))
            for line in prompts:
                typer.echo(line)
            typer.echo(describe_memory(resolved, processes=place.size))
            absent += list_absent(resolved)
            if absent:
                typer.echo(f"not there yet: {', '.join(absent)}")
        return
    from transformers.utils.logging import disable_progress_bar

    from elocution.train.device import choose_device
    from elocution.train.loop import train as run_training
    from elocution.train.world import open_world

    disable_progress_bar()
    name = config.stem if config else "tiny"
    if not is_first:
        logging.getLogger().setLevel(logging.WARNING)
    device = choose_device(resolved.train.device, place)
    with open_world(place, device=device, wait_s=resolved.train.wait_s) as world:
        # The first process names the folder: the clocks of the others may have gone on.
        run = world.gather(output_dir or Path("runs") / f"{name}-{datetime.now():%Y%m%d-%H%M%S}")[0]
        if is_first:
            processes = f" ({world.size} processes)" if world.size > 1 else ""
            typer.echo(f"run directory: {run}{processes}")
        with _Bars() if is_first else nullcontext() as bars:
            summary = run_training(resolved, run, resume=resume, progress=bars, device=device, world=world)
    if not is_first:
        return
    if summary.stopped_by:
        typer.echo(
            f"stopped by {summary.stopped_by} after step {summary.step}; a checkpoint was written. Continue with:"
        )
        typer.echo(f"  elocution train --resume --output-dir {run}")
        return
    for label, evaluation in (("before", summary.before), ("after", summary.after)):
        if evaluation:
            typer.echo(
                f"held-out WER {label}: {100 * evaluation.wer:5.1f} %  "
                f"(95 % interval {100 * evaluation.wer_low:.1f} to {100 * evaluation.wer_high:.1f})"
            )
    typer.echo(f"the report: elocution report {run}")


class _Bars:
    """Draws the loop's progress: a bar for the steps, and one for each evaluation."""

    def __init__(self) -> None:
        from tqdm import tqdm
        from tqdm.contrib.logging import logging_redirect_tqdm

        self._tqdm = tqdm
        self._bars: dict[str, Any] = {}
        self._redirect = logging_redirect_tqdm()

    def __enter__(self) -> "_Bars":
        self._redirect.__enter__()
        return self

    def __exit__(self, *details: Any) -> None:
        for bar in self._bars.values():
            bar.close()
        self._redirect.__exit__(*details)

    def __call__(self, stage: str, done: int, total: int, metrics: dict[str, Any]) -> None:
        if stage not in self._bars:
            unit = "step" if stage == "train" else "clip"
            self._bars[stage] = self._tqdm(total=total, initial=max(0, done - 1), desc=stage, unit=unit)
        bar = self._bars[stage]
        bar.update(done - bar.n)
        if metrics.get("reward/mean") is not None:
            bar.set_postfix(reward=f"{metrics['reward/mean']:.3f}")
        if done == total:
            bar.close()
