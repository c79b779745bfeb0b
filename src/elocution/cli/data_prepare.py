"""`elocution data prepare …`."""

from pathlib import Path
from typing import Annotated, Literal

import typer

__all__ = ["app", "cosyvoice2"]

app = typer.Typer(no_args_is_help=True, help="Data sets in the layouts of published recipes.")


@app.callback()
def _group() -> None:
    """Keeps a recipe a command of its own while it is the only one."""


@app.command()
def cosyvoice2(
    source: Annotated[
        str, typer.Argument(help="JSON lines with `text`, for example metadata/aishell-3.jsonl, or builtin:NAME.")
    ],
    to: Annotated[Path, typer.Option("--to", help="Folder for train.parquet, test.parquet and rejected.jsonl.")],
    test_source: Annotated[
        str | None,
        typer.Option(help="JSON lines whose last rows are the test split. Default: SOURCE.", show_default=False),
    ] = None,
    split: Annotated[
        Literal["published", "seeded"],
        typer.Option(help="First rows train and last rows test, or both drawn by --seed."),
    ] = "published",
    train: Annotated[int, typer.Option(help="Most rows to train on.")] = 80_000,
    test: Annotated[int, typer.Option(help="Rows to test on.")] = 100,
    start: Annotated[
        Literal["none", "speech_prefix", "voice"],
        typer.Option(
            help="What an answer begins with: nothing; 1 to 5 s of the row's own `code`; or its `prompt_codes`, with "
            "`prompt_text` before the text."
        ),
    ] = "none",
    language: Annotated[str, typer.Option(help="Language of the texts, ISO 639-1.")] = "zh",
    seed: Annotated[int, typer.Option(help="Seed of the split and of the prefixes' lengths.")] = 0,
    codebook_size: Annotated[int, typer.Option(help="Codes are below it.")] = 6561,
    carry: Annotated[bool, typer.Option(help="Keep the other columns of the source.")] = True,
    copy_to: Annotated[
        str | None, typer.Option(help="Also copy the files there: hdfs://…, s3://… or another URL of fsspec.")
    ] = None,
) -> None:
    """Writes the parquet that the CosyVoice2 recipe on veRL reads; `elocution train` reads it too.

    Bad rows are left out, listed, and written to rejected.jsonl with their lines.

    Example: `elocution data prepare cosyvoice2 aishell-3.jsonl --to data/parquet_aishell3`
    """
    from elocution.assets import resolve_path
    from elocution.data.recipe import SplitSettings, copy_to_url, prepare_recipe
    from elocution.data.recipe_rows import RecipeSettings
    from elocution.text.language import check_language

    check_language(language)
    done = prepare_recipe(
        resolve_path(str(source)),
        to,
        SplitSettings(split, train=train, test=test, seed=seed),
        RecipeSettings(start, language=language, seed=seed, codebook_size=codebook_size),
        test_source=None if test_source is None else resolve_path(str(test_source)),
        carry=carry,
    )
    typer.echo(f"{to}: {done.train} rows to train on, {done.test} to test on, {len(done.bad)} bad")
    if done.shared:
        typer.echo(f"  {done.shared} training rows left out: their texts are in the test split")
    for row in done.bad[:10]:
        typer.echo(f"  {row}")
    if done.bad:
        typer.echo(f"  all of them in {to / 'rejected.jsonl'}")
    if copy_to:
        copy_to_url(to, copy_to)
        typer.echo(f"copied to {copy_to}")
