"""`elocution generate`."""

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["generate"]


def generate(
    text: Annotated[str, typer.Option(help="What to say.")],
    output: Annotated[Path, typer.Option(help="Audio file to write: .wav, .flac, .ogg or .mp3.")],
    model: Annotated[
        str, typer.Option(help="Checkpoint folder, a run's checkpoint (runs/R/best), or builtin:NAME.")
    ] = "builtin:tiny-llasa",
    family: Annotated[str, typer.Option(help="Model family.")] = "llasa",
    codec: Annotated[str, typer.Option(help="Codec type.")] = "tiny",
    codec_path: Annotated[str, typer.Option(help="Codec folder or builtin:NAME.")] = "builtin:tiny-codec",
    language: Annotated[str, typer.Option(help="Language of the text, ISO 639-1.")] = "en",
    temperature: Annotated[float, typer.Option(min=0.01, max=10.0, help="Lower is safer, higher more varied.")] = 0.3,
    seed: Annotated[int, typer.Option(min=0, help="Another seed, another reading.")] = 0,
    speaker: Annotated[str, typer.Option(help="A voice that the checkpoint was taught: see docs/llasa.md.")] = "",
    ref_audio: Annotated[Path | None, typer.Option(help="A recording whose voice to take.")] = None,
    ref_text: Annotated[
        str | None, typer.Option(help="The words of the recording, exactly; families that read none need none.")
    ] = None,
    emotion: Annotated[str, typer.Option(help="How to speak, for families that take an instruction: MOSS.")] = "",
) -> None:
    """Speaks one sentence into an audio file.

    Examples:

    `elocution generate --text "the doctor visited the school" --output base.wav`

    `elocution generate --model runs/demo/best --text "the doctor visited the school" --output trained.wav`

    `elocution generate --family moss … --emotion happy --ref-audio voice.wav --text "Here you are." --output happy.wav`
    """
    from transformers.utils.logging import disable_progress_bar

    from elocution.data.prompt_rows import VoiceSource
    from elocution.generate import speak

    if ref_text is not None and ref_audio is None:
        raise typer.BadParameter("--ref-text is the words of a recording: give --ref-audio too")
    disable_progress_bar()

    spoken = speak(
        text,
        output,
        model=model,
        family=family,
        codec=codec,
        codec_path=codec_path,
        language=language,
        temperature=temperature,
        seed=seed,
        speaker=speaker,
        voice=VoiceSource(ref_text or "", ref_audio, None) if ref_audio is not None else None,
        emotion=emotion,
    )
    typer.echo(f"{output}: {spoken.duration_s:.2f} s")
