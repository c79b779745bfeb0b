"""`elocution tiny …`."""

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["app", "build"]

app = typer.Typer(no_args_is_help=True, help="The tiny codec and checkpoints that ship with elocution.")


@app.callback()
def _group() -> None:
    """Keeps `build` a command of its own while it is the only one."""


@app.command()
def build(
    output: Annotated[Path, typer.Option(help="Folder to build in; finished stages are not run again.")],
    workers: Annotated[int, typer.Option(min=0, help="Processes that speak; 0 means one for each core.")] = 0,
) -> None:
    """Makes the tiny codec, recogniser, prompts and checkpoints again from scratch, offline.

    Needs `pip install 'elocution[tiny-build]'` and about an hour on two cores.
    """
    from elocution.tiny.build import build as run_build

    run_build(output, workers=workers)
    typer.echo(f"built in {output}")
