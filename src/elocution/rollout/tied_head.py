"""The output matrix of a checkpoint with tied embeddings, written out for engines that would else keep an old one."""

import json
from pathlib import Path

from safetensors import safe_open
from safetensors.torch import save_file

from elocution.errors import CheckpointError

__all__ = ["lacks_head", "write_head"]

_INDEX = "model.safetensors.index.json"
_HEAD, _EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"
_HEAD_FILE = "lm_head.safetensors"


def lacks_head(directory: Path) -> bool:
    """Whether the checkpoint in `directory` has tied embeddings and no output matrix of its own.

    vLLM reloads such a checkpoint without an error and goes on with the output matrix that it had before.

    Raises: CheckpointError if the folder holds no safetensors.
    """
    return _HEAD not in _places(directory) and bool(_config(directory).get("tie_word_embeddings"))


def write_head(directory: Path) -> None:
    """Adds the embedding once more as the output matrix, in a file of its own, if the checkpoint lacks one.

    Raises: CheckpointError if the folder holds no safetensors, or no embedding under its usual name.
    """
    if not lacks_head(directory):
        return
    places = _places(directory)
    if _EMBEDDING not in places:
        raise CheckpointError(f"{directory} has no tensor {_EMBEDDING} to write as {_HEAD}")
    with safe_open(directory / places[_EMBEDDING], framework="pt") as file:
        save_file({_HEAD: file.get_tensor(_EMBEDDING)}, directory / _HEAD_FILE, metadata={"format": "pt"})
    index = directory / _INDEX
    if index.is_file():
        described = json.loads(index.read_text(encoding="utf-8"))
        described["weight_map"][_HEAD] = _HEAD_FILE
        index.write_text(json.dumps(described, indent=2) + "\n", encoding="utf-8")


def _places(directory: Path) -> dict[str, str]:
    """The file of each tensor."""
    files = sorted(directory.glob("*.safetensors"))
    if not files:
        raise CheckpointError(f"{directory} holds no .safetensors file; give a checkpoint folder")
    places = {}
    for path in files:
        with safe_open(path, framework="pt") as file:
            places.update(dict.fromkeys(file.keys(), path.name))
    return places


def _config(directory: Path) -> dict[str, object]:
    path = directory / "config.json"
    try:
        config: dict[str, object] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"cannot read {path}: {error}") from error
    return config
