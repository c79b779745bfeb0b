"""`elocution data …`."""

from pathlib import Path
from typing import Annotated

import typer

from elocution.data.prompts import load_prompts
from elocution.errors import DataError

__all__ = ["app", "validate"]

app = typer.Typer(no_args_is_help=True, help="Prompt files: check them before a run does.")


@app.callback()
def _group() -> None:
    """Keeps `validate` a command of its own while it is the only one."""


@app.command()
def validate(
    path: Annotated[Path, typer.Argument(help="JSONL file with `text` and optionally `id`, `language`.")],
    language: Annotated[list[str] | None, typer.Option(help="Languages allowed; repeatable. Default: en.")] = None,
) -> None:
    """Lists every bad row of a prompt file by line; the exit status is 1 if there is one."""
    prompts = load_prompts(path, languages=language or ["en"], on_bad_row="skip", check_text=lambda utterance: None)
    for row in prompts.skipped:
        typer.echo(str(row))
    typer.echo(f"{path}: {len(prompts.utterances)} usable rows, {len(prompts.skipped)} bad")
    if prompts.skipped:
        raise DataError(f"{len(prompts.skipped)} bad rows in {path}")
