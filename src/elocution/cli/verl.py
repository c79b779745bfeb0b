"""`elocution verl`."""

import shlex
import subprocess
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from elocution.errors import MissingDependency

__all__ = ["verl"]


def verl(
    config: Annotated[Path, typer.Argument(help="TOML file of the run; docs/verl.md says which keys veRL follows.")],
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Override one value; repeatable.")
    ] = None,
    output_dir: Annotated[
        Path | None, typer.Option("--output-dir", help="Run directory. Default: runs/NAME-verl-TIME.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the command, let veRL resolve it if it is installed, and end.")
    ] = False,
) -> None:
    """Trains with veRL, on Ray, what `elocution train` trains with our own engine.

    The config becomes overrides of veRL's, which veRL itself resolves; the reward is asked of our reward servers. Before
    anything starts, the batch arithmetic, veRL's environment, the GPUs and every reward server are checked.

    Examples:

    `elocution verl configs/cosyvoice2/published.toml --dry-run`

    `elocution verl my.toml --set verl.python=verl-env/bin/python --output-dir runs/verl`
    """
    from elocution.config.load import load_config
    from elocution.other_python import variables_for
    from elocution.verl.environment import find_verl
    from elocution.verl.launch import check_environment, check_servers, plan_run, resolve_by_verl, write_config

    resolved = load_config(config, overrides or [])
    run = plan_run(resolved, output_dir or Path("runs") / f"{config.stem}-verl-{datetime.now():%Y%m%d-%H%M%S}")
    python = resolved.verl.python
    try:
        found = find_verl(python)
    except MissingDependency as error:
        if not dry_run:
            raise
        typer.echo(shlex.join(run.command))
        typer.echo(f"note: {error}", err=True)
        return
    resolve_by_verl(run, python)
    if dry_run:
        typer.echo(shlex.join(run.command))
        typer.echo(f"note: veRL {found.version} resolves every override", err=True)
        return
    check_environment(resolved, found)
    check_servers(resolved)
    write_config(run, resolved)
    typer.echo(f"run directory: {run.files.config.parent}")
    done = subprocess.run(run.command, check=False, env=variables_for(python))
    if done.returncode:
        raise typer.Exit(done.returncode)
    typer.echo(f"merge a checkpoint: elocution convert merge {run.files.checkpoints}/global_step_N/actor --to hf")
