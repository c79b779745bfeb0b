"""`elocution data …`."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from elocution.cli import data_prepare
from elocution.errors import DataError

__all__ = ["app", "tokenize", "validate"]

app = typer.Typer(no_args_is_help=True, help="Prompts and recordings: check them, turn them into codes.")
app.add_typer(data_prepare.app, name="prepare")


@app.command()
def validate(
    path: Annotated[
        Path, typer.Argument(help="JSONL or parquet with `text`, and optionally `id`, `language` and a voice.")
    ],
    language: Annotated[list[str] | None, typer.Option(help="Languages allowed; repeatable. Default: en.")] = None,
    model: Annotated[
        str | None, typer.Option(help="Checkpoint folder or builtin:NAME: also list what it cannot speak.")
    ] = None,
    family: Annotated[str, typer.Option(help="Model family of --model.")] = "llasa",
) -> None:
    """Lists every bad row of a prompt file by line; the exit status is 1 if there is one.

    Examples:

    `elocution data validate prompts.jsonl --language en --language zh`

    `elocution data validate prompts.jsonl --model builtin:tiny-llasa` also finds words that the checkpoint was never taught.
    """
    from transformers.utils.logging import disable_progress_bar

    from elocution.assets import resolve_path
    from elocution.data.prompts import load_prompts
    from elocution.policies import load_policy
    from elocution.text.language import check_language

    disable_progress_bar()
    for code in language or ():
        check_language(code)
    policy = load_policy(family, resolve_path(model)) if model else None
    prompts = load_prompts(
        path,
        languages=language or ["en"],
        on_bad_row="skip",
        check_text=policy.check_text if policy else lambda utterance: None,
    )
    for row in prompts.skipped:
        typer.echo(str(row))
    typer.echo(f"{path}: {len(prompts.utterances)} usable rows, {len(prompts.skipped)} bad")
    if prompts.skipped:
        raise DataError(f"{path} cannot be used as it is")


@app.command()
def tokenize(
    source: Annotated[
        str,
        typer.Argument(
            help="A folder of recordings with texts beside them or a metadata file, a manifest (.jsonl with `audio` and "
            "`text`), parquet, a saved dataset, or the name of one on the Hugging Face Hub."
        ),
    ],
    output: Annotated[Path, typer.Option(help="Folder for the shards; a call that was cut short goes on there.")],
    codec: Annotated[str, typer.Option(help="Codec: a name of docs/codecs.md, or module:Class.")] = "tiny",
    codec_path: Annotated[str, typer.Option(help="Codec folder or builtin:NAME.")] = "builtin:tiny-codec",
    split: Annotated[str, typer.Option(help="Split of a dataset.")] = "train",
    audio_column: Annotated[str, typer.Option(help="Column of a dataset that holds the sound.")] = "audio",
    text_column: Annotated[str, typer.Option(help="Column that holds the words.")] = "text",
    language: Annotated[str, typer.Option(help="Language of rows that name none.")] = "en",
    min_s: Annotated[float, typer.Option(help="Shortest clip, seconds.")] = 0.2,
    max_s: Annotated[float, typer.Option(help="Longest clip, seconds.")] = 40.0,
    shard_size: Annotated[int, typer.Option(help="Clips in a shard.")] = 1000,
    workers: Annotated[int, typer.Option(help="Processes; 0 means one for each core.")] = 0,
    on_bad_clip: Annotated[
        Literal["skip", "stop"], typer.Option(help="What a clip that cannot be used does to the exit status.")
    ] = "skip",
    push_to_hub: Annotated[str | None, typer.Option(help="Also upload the set under this name.")] = None,
) -> None:
    """Encodes recordings into parquet with `text` and `audio_code_ids`.

    Clips that cannot be used are listed in `rejected.jsonl` with their reasons. Called again with the same arguments, it
    goes on after the last whole shard.
    """
    from tqdm import tqdm

    from elocution.assets import resolve_path
    from elocution.data.clips import open_clips
    from elocution.data.round_trip import USUAL_LIKENESS, decode_first
    from elocution.data.tokenize import TokenizeSettings, push_shards, tokenize_clips
    from elocution.text.language import check_language

    check_language(language)
    clips = open_clips(source, split=split, audio_column=audio_column, text_column=text_column, language=language)
    settings = TokenizeSettings(
        codec, resolve_path(codec_path), min_s=min_s, max_s=max_s, shard_size=shard_size, workers=workers
    )
    with tqdm(total=len(clips.ids), desc="encoding", unit="clip") as bar:

        def show(clips_done: int, _: int) -> None:
            bar.update(clips_done - bar.n)

        done = tokenize_clips(clips, output, settings, progress=show)
    typer.echo(f"{output}: {done.clips} clips, {done.seconds / 3600:.2f} h; {len(done.rejected)} left out")
    for row in done.rejected[:10]:
        typer.echo(f"  {row['id']}: {row['reason']}")
    if done.rejected:
        typer.echo(f"  all of them in {output / 'rejected.jsonl'}")
    if heard := decode_first(clips, output, settings):
        typer.echo(f"  {heard.id} as its codes sound: {heard.path}, likeness of the spectra {heard.likeness:.2f}")
        if heard.likeness < USUAL_LIKENESS:
            typer.echo(
                f"warning: a codec that is whole comes above {USUAL_LIKENESS}; listen to that file before these codes are used",
                err=True,
            )
    if done.rejected and on_bad_clip == "stop":
        raise DataError(f"{len(done.rejected)} clips of {source} cannot be used")
    if push_to_hub:
        push_shards(output, push_to_hub)
        typer.echo(f"uploaded to {push_to_hub}")
