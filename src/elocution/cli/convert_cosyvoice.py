"""`elocution convert cosyvoice2 …`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from elocution.export.cosyvoice import HeadDifference

__all__ = ["app", "to_hf", "to_native"]

app = typer.Typer(
    no_args_is_help=True,
    help="CosyVoice2 and 3: llm.pt to the folder that is trained, and back; which one is told by the file.",
)

Dtype = Annotated[
    Literal["keep", "fp32", "bf16"], typer.Option(help="Type of the weights; keep makes a round trip bit-identical.")
]


@app.command("to-hf")
def to_hf(
    source: Annotated[
        str,
        typer.Argument(
            help="Model folder with llm.pt, such a file, for example llm.rl.pt, or builtin:tiny-cosyvoice2."
        ),
    ],
    to: Annotated[Path, typer.Option("--to", help="Folder to write; must not exist.")],
    dtype: Dtype = "keep",
    bias: Annotated[
        Literal["keep", "drop"],
        typer.Option(help="CosyVoice2's speech head: with its bias, or without for engines that know none."),
    ] = "keep",
    text_model: Annotated[
        Path | None,
        typer.Option(
            help="Folder with the text model's config.json and tokenizer. Default: CosyVoice-BlankEN beside it."
        ),
    ] = None,
) -> None:
    """Writes the Hugging Face folder that `elocution train` and the published recipe train.

    The folder is opened again and its logits are compared with those of llm.pt before it appears.

    Example: `elocution convert cosyvoice2 to-hf CosyVoice2-0.5B --to cosyvoice2-hf`
    """
    from elocution.assets import resolve_path
    from elocution.export.cosyvoice import to_huggingface

    _quiet()
    done = to_huggingface(resolve_path(source), to, dtype=dtype, bias=bias, text_model=text_model)
    ids = done.ids
    typer.echo(
        f"{to}: CosyVoice{ids.generation}, {ids.num_codes} codes from id {ids.first_code}, stop {ids.eos}, start {ids.sos}, "
        f"task {ids.task}; all {done.tensors} tensors used; logits differ by at most {done.logits:.2g}"
    )
    _print_difference(done.without_bias)


@app.command("to-native")
def to_native(
    source: Annotated[Path, typer.Argument(help="A run (its best checkpoint), a checkpoint, or a model folder.")],
    to: Annotated[Path, typer.Option("--to", help="File to write, for example llm.pt; must not exist.")],
    dtype: Dtype = "keep",
    original: Annotated[
        Path | None,
        typer.Option(
            help="llm.pt that the folder came from: gives the bias, and text rows that a folder has no place for."
        ),
    ] = None,
    zero_bias: Annotated[
        bool, typer.Option("--zero-bias", help="Where the folder has no bias of the speech head, write 0.")
    ] = False,
) -> None:
    """Writes an llm.pt with exactly the keys that the native class loads; an adapter is merged.

    The file is opened again and its tensors and logits are compared before it appears. Files in the published layouts of
    CosyVoice2 and 3 are told apart by their tokenizers.

    Example: `elocution convert cosyvoice2 to-native runs/demo --to llm.pt`
    """
    from elocution.export.cosyvoice import to_native as convert

    _quiet()
    done = convert(source, to, dtype=dtype, original=original, zero_bias=zero_bias)
    typer.echo(
        f"{to}: CosyVoice{done.ids.generation}, {done.tensors} tensors, opened again; "
        f"logits differ by at most {done.logits:.2g}"
    )
    _print_difference(done.without_bias)


def _print_difference(difference: "HeadDifference | None") -> None:
    if difference is None:
        return
    typer.echo(
        f"without the bias, log-probs of speech differ by up to {difference.logprob:.3g} nats (mean KL {difference.kl:.3g}); "
        f"drawn from the whole vocabulary, {difference.escaped:.1%} would be no speech: draw from the legal ids alone"
    )


def _quiet() -> None:
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
