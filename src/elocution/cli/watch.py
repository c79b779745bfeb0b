"""`elocution watch`."""

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["watch"]


def watch(
    run: Annotated[Path, typer.Argument(help="Run directory; the run may be going on.")],
    port: Annotated[int, typer.Option(min=0, max=65_535, help="TCP port on this machine; 0 takes a free one.")] = 8060,
) -> None:
    """Shows the report of a run while it goes on: the page follows the run directory. Ctrl-C ends it.

    Example: `elocution watch runs/mine`, then open the address that it prints. Nothing outside this machine can reach it.
    """
    from elocution.report.live import open_server

    with open_server(run, port) as server:
        typer.echo(f"watching {run}: http://127.0.0.1:{server.server_port}")
        server.serve_forever()
