"""`elocution convert …`."""

import warnings
from pathlib import Path
from typing import Annotated, Literal

import typer

from elocution.cli import convert_cosyvoice

__all__ = ["app", "huggingface", "merge", "peft"]

app = typer.Typer(no_args_is_help=True, help="Trained models in the layouts that other software opens.")
app.add_typer(convert_cosyvoice.app, name="cosyvoice2")

Source = Annotated[Path, typer.Argument(help="A run (its best checkpoint), a checkpoint, or a model folder.")]
Target = Annotated[Path, typer.Option("--to", help="Folder to write; must not exist.")]
Family = Annotated[str | None, typer.Option(help="Model family. Default: that of the run.", show_default=False)]


@app.command("hf")
def huggingface(
    source: Source,
    to: Target,
    dtype: Annotated[Literal["fp32", "bf16", "fp16"], typer.Option(help="Type of the weights.")] = "fp32",
    family: Family = None,
) -> None:
    """Writes a Hugging Face folder for AutoModelForCausalLM and AutoTokenizer; an adapter is merged.

    The folder is opened again and its tensors, ids and logits are compared before it appears.

    Example: `elocution convert hf runs/demo --to exported`
    """
    from elocution.export.huggingface import export_model
    from elocution.export.source import find_source

    _quiet()
    difference = export_model(find_source(source, family), to, dtype=dtype)
    typer.echo(f"{to}: opened again, logits differ by at most {difference:.2g}")


@app.command()
def merge(
    source: Annotated[Path, typer.Argument(help="A checkpoint of veRL: global_step_N, or the folder actor in it.")],
    to: Target,
    python: Annotated[
        str, typer.Option(help="Python of the environment with veRL. Default: this one.", show_default=False)
    ] = "",
    family: Annotated[str, typer.Option(help="Model family, as which the folder is opened again.")] = "cosyvoice2",
) -> None:
    """Merges the FSDP shards of a run on veRL into a Hugging Face folder, by veRL's own merger.

    The folder is opened again before it appears. Checkpoints of `elocution train` are whole, and need no merging.

    Example: `elocution convert merge runs/verl/checkpoints/global_step_100 --to hf --python verl-env/bin/python`
    """
    from elocution.verl.merge import merge_shards

    _quiet()
    count = merge_shards(source, to, python=python, family=family)
    typer.echo(f"{to}: merged from {count} shards, in bfloat16; opened again")


@app.command()
def peft(
    source: Source,
    to: Target,
    base: Annotated[
        str | None, typer.Option(help="Name of the base for others, as on the Hub. Default: its folder here.")
    ] = None,
    family: Family = None,
) -> None:
    """Writes the adapter of a LoRA run for peft's PeftModel, opened again and compared.

    Example: `elocution convert peft runs/lora --to adapter --base HKUSTAudio/Llasa-1B`
    """
    from elocution.export.huggingface import export_adapter
    from elocution.export.source import find_source

    _quiet()
    # peft asks transformers for an attribute by its older name.
    warnings.filterwarnings("ignore", message="`is_gradient_checkpointing` is deprecated", category=FutureWarning)
    difference = export_adapter(find_source(source, family), to, base=base)
    typer.echo(f"{to}: opened again, logits differ by at most {difference:.2g}")


def _quiet() -> None:
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
