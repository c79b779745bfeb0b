"""`elocution report`."""

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["report"]


def report(run: Annotated[Path, typer.Argument(help="Run directory.")]) -> None:
    """Writes `report.html` into a run directory: what changed and how surely, audio to listen to, curves, a blind test.

    Example: `elocution report runs/demo`, then open `runs/demo/report.html`. The page needs no network.
    """
    from elocution.report.page import write_report

    typer.echo(f"report: {write_report(run)}")
