"""The command line's one entry point: parses, calls one function, prints. Errors end here."""

import logging
import signal
import sys
from types import FrameType
from typing import Annotated

import typer

from elocution import __version__
from elocution.cli import (
    convert,
    data,
    doctor,
    evaluate,
    generate,
    preference,
    report,
    score,
    serve,
    tiny,
    train,
    verl,
    watch,
)
from elocution.errors import ConfigError, ElocutionError

__all__ = ["app", "main"]

app = typer.Typer(
    name="elocution",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="Post-train text-to-speech language models with GRPO: sample readings, listen, prefer the better ones.",
    epilog="Start with `elocution train`, then `elocution report RUN` and open the page.",
)
app.command("train")(train.train)
app.command("eval")(evaluate.evaluate)
app.command("score")(score.score)
app.command("generate")(generate.generate)
app.command("report")(report.report)
app.command("watch")(watch.watch)
app.command("preference")(preference.preference)
app.command("verl")(verl.verl)
app.command("doctor")(doctor.doctor)
app.add_typer(convert.app, name="convert")
app.add_typer(data.app, name="data")
app.add_typer(serve.app, name="serve")
app.add_typer(tiny.app, name="tiny")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"elocution {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks and debug messages.")] = False,
) -> None:
    logging.basicConfig(
        level=logging.DEBUG if debug else logging.INFO, format="%(message)s", stream=sys.stderr, force=True
    )
    for noisy in ("httpx", "httpx2", "httpcore2", "numba", "urllib3", "filelock"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


class _Terminated(SystemExit):
    """SIGTERM came."""


def _end(number: int, frame: FrameType | None) -> None:
    """Unwinds what is open; a run and the servers, once they are at work, have handlers of their own."""
    raise _Terminated(128 + number)


def main() -> None:
    """Runs the command line; an expected error becomes one message and a non-zero status, SIGTERM an orderly end."""
    signal.signal(signal.SIGTERM, _end)
    try:
        app(standalone_mode=True)
    except _Terminated:
        typer.echo("stopped by SIGTERM", err=True)
        raise
    except ElocutionError as error:
        if "--debug" in sys.argv:
            raise
        typer.echo(f"error: {error}", err=True)
        sys.exit(2 if isinstance(error, ConfigError) else 1)
    except ImportError as error:
        if "--debug" in sys.argv:
            raise
        typer.echo(f"error: {error}; `elocution doctor` says what is missing or broken", err=True)
        sys.exit(1)
    except (OSError, MemoryError) as error:  # the machine's trouble; other errors are bugs, and keep their traceback
        if "--debug" in sys.argv:
            raise
        typer.echo(f"error: {str(error) or 'out of memory'}", err=True)
        sys.exit(1)
    except KeyboardInterrupt:
        typer.echo("interrupted", err=True)
        sys.exit(130)
