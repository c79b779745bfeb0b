"""`elocution tiny …`."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["TinyFamily", "app", "build"]


class TinyFamily(StrEnum):
    """Model families of which elocution makes a tiny checkpoint."""

    LLASA = "llasa"
    MOSS = "moss"


app = typer.Typer(no_args_is_help=True, help="The tiny codec and checkpoints that ship with elocution.")


@app.callback()
def _group() -> None:
    """Keeps `build` a command of its own while it is the only one."""


@app.command()
def build(
    output: Annotated[Path, typer.Option(help="Folder to build in; finished stages are not run again.")],
    family: Annotated[
        TinyFamily, typer.Argument(help="Whose checkpoint, with its codec and prompts.")
    ] = TinyFamily.LLASA,
    workers: Annotated[int, typer.Option(min=0, help="Processes that speak; 0 means one for each core.")] = 0,
) -> None:
    """Makes a tiny codec, prompts and checkpoints from scratch, offline; with `llasa`, the recogniser too.

    Needs `pip install 'elocution[tiny-build]'` and about an hour on two cores, with `moss` several.
    """
    if family is TinyFamily.MOSS:
        from elocution.tiny.moss_build import build_moss

        build_moss(output, workers=workers)
    else:
        from elocution.tiny.build import build as run_build

        run_build(output, workers=workers)
    typer.echo(f"built in {output}")
