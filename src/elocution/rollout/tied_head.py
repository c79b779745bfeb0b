"""Whether a checkpoint with tied embeddings holds its output matrix under its own name, as some engines need it."""

import json
from pathlib import Path

from safetensors import safe_open

from elocution.errors import CheckpointError

__all__ = ["lacks_head"]

_HEAD = "lm_head.weight"


def lacks_head(directory: Path) -> bool:
    """Whether the checkpoint in `directory` has tied embeddings and no output matrix of its own.

    vLLM reloads such a checkpoint without an error and goes on with the output matrix that it had before.

    Raises: CheckpointError if the folder holds no safetensors.
    """
    return _HEAD not in _names(directory) and bool(_config(directory).get("tie_word_embeddings"))


def _names(directory: Path) -> set[str]:
    """The names of all tensors."""
    files = sorted(directory.glob("*.safetensors"))
    if not files:
        raise CheckpointError(f"{directory} holds no .safetensors file; give a checkpoint folder")
    names: set[str] = set()
    for path in files:
        with safe_open(path, framework="pt") as file:
            names.update(file.keys())
    return names


def _config(directory: Path) -> dict[str, object]:
    path = directory / "config.json"
    try:
        config: dict[str, object] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"cannot read {path}: {error}") from error
    return config
