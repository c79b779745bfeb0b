"""Checkpoint folders as transformers reads and writes them, for every family: whole, or an error that names what is wrong."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import torch
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from elocution.errors import CheckpointError, ElocutionError
from elocution.files import apply_umask
from elocution.loading import LOADING
from elocution.policies.lora import merged_state_dict
from elocution.policies.weights import check_stored

__all__ = ["load_model", "reading_checkpoint", "save_folder"]

Model = TypeVar("Model", bound=PreTrainedModel)


@contextmanager
def reading_checkpoint(folder: Path) -> Iterator[None]:
    """Turns whatever the libraries that read `folder` may raise into an error that names it.

    Raises: CheckpointError, at once if it is no checkpoint folder at all.
    """
    if not (folder / "config.json").is_file():
        raise CheckpointError(f"{folder} is no checkpoint folder: it has no config.json")
    try:
        yield
    except ElocutionError:
        raise
    except Exception as error:  # a damaged file may end in any error of those libraries
        raise CheckpointError(f"cannot load the checkpoint {folder}: {type(error).__name__}: {error}") from error


def load_model(kind: type[Model], folder: Path, config: PreTrainedConfig, *, dtype: torch.dtype) -> Model:
    """The model of class `kind` with the tensors in `folder`, held in `dtype`; nothing is downloaded.

    Raises: CheckpointError if tensors are missing, left over, of another shape or no floats; what the readers of the files
    raise if they are damaged.
    """
    untyped: Any = kind
    with LOADING:
        with torch.device("meta"):
            check_stored(folder, untyped(config).state_dict())
        model, loading = untyped.from_pretrained(
            folder, config=config, dtype=dtype, local_files_only=True, output_loading_info=True
        )
    if wrong := {what: sorted(map(str, keys)) for what, keys in loading.items() if keys}:
        raise CheckpointError(f"the tensors in {folder} do not fit the model: {wrong}")
    # Loaded tensors may lie in the file's own pages, at any alignment: a copy outlives the file, and sums in the same
    # order as weights that were trained in memory.
    for tensor in (*model.parameters(), *model.buffers()):
        tensor.data = tensor.data.clone()
    loaded: Model = model
    return loaded


def save_folder(folder: Path, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    """Writes the model, an adapter folded in, and its tokenizer, readable as the umask says."""
    model.save_pretrained(folder, state_dict=merged_state_dict(model))
    tokenizer.save_pretrained(folder)
    apply_umask(*folder.glob("*.safetensors"))
