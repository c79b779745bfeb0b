"""A CosyVoice folder in the Hugging Face layout: its tensors from one file or many, and what it keeps of its `llm.pt`."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import PreTrainedTokenizerBase, Qwen2Config, Qwen2ForCausalLM

from elocution.errors import CheckpointError
from elocution.export.cosyvoice_tables import NativeRest
from elocution.files import apply_umask
from elocution.loading import LOADING
from elocution.policies import load_policy
from elocution.policies.biased_head import HEAD_BIAS
from elocution.policies.cosyvoice_ids import SpeechIds, read_ids
from elocution.policies.llama_config import read_llama_config
from elocution.policies.lora import is_adapter, merged_state_dict
from elocution.policies.tokenizer import load_tokenizer

__all__ = ["SpeechFolder", "read_folder", "read_rest", "write_rest"]

_WEIGHTS, _INDEX = "model.safetensors", "model.safetensors.index.json"
_REST = "llm_pt_rest.safetensors"


@dataclass(frozen=True)
class SpeechFolder:
    """A whole folder, read and checked."""

    path: Path
    config: Qwen2Config
    tokenizer: PreTrainedTokenizerBase
    ids: SpeechIds
    tensors: Mapping[str, Tensor]

    @property
    def family(self) -> str:
        return f"cosyvoice{self.ids.generation}"


def read_folder(path: Path, *, family: str | None = None) -> SpeechFolder:
    """The folder `path`; an adapter is merged into its base, for which `family` must be known.

    Raises: CheckpointError if it is not whole, has a tensor missing, too many or of another shape, or another layout.
    """
    if is_adapter(path):
        policy: Any = load_policy(family or "cosyvoice2", path)
        config, tokenizer = policy.llama.config, policy.tokenizer
        tensors: Mapping[str, Tensor] = merged_state_dict(policy.model)
    else:
        read: Any = read_llama_config(path / "config.json", family="cosyvoice2", model_types=("qwen2",))
        config, tensors = read, _read_tensors(path)
        try:
            tokenizer = load_tokenizer(path)
        except Exception as error:  # a damaged file may end in any error of the libraries that read it
            raise CheckpointError(f"cannot load the tokenizer in {path}: {type(error).__name__}: {error}") from error
    if config.tie_word_embeddings:
        raise CheckpointError(f"{path / 'config.json'} ties the head to the table, but speech has a head of its own")
    ids = read_ids(tokenizer)
    _check_tensors(path, tensors, config)
    return SpeechFolder(path, config, tokenizer, ids, tensors)


def read_rest(*folders: Path) -> NativeRest:
    """What the first of `folders` that has kept something of its `llm.pt` has; nothing if none has.

    Raises: CheckpointError if the file is damaged.
    """
    for folder in folders:
        if (folder / _REST).is_file():
            try:
                return NativeRest(load_file(folder / _REST))
            except (OSError, SafetensorError) as error:
                raise CheckpointError(f"cannot load {folder / _REST}: {error}") from error
    return NativeRest()


def write_rest(folder: Path, rest: NativeRest) -> None:
    """Keeps `rest` in `folder`, under a name that no other software looks for."""
    save_file({name: tensor.contiguous() for name, tensor in rest.tensors.items()}, folder / _REST, {"format": "pt"})
    apply_umask(folder / _REST)


def _read_tensors(path: Path) -> dict[str, Tensor]:
    """From `model.safetensors`, or from the files that its index names, each tensor where the index has it."""
    index = path / _INDEX
    try:
        if index.is_file():
            places: dict[str, str] = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        elif (path / _WEIGHTS).is_file():
            with safe_open(path / _WEIGHTS, framework="pt") as file:
                places = dict.fromkeys(file.keys(), _WEIGHTS)
        else:
            raise CheckpointError(f"{path} has neither {_WEIGHTS} nor {_INDEX}")
        tensors: dict[str, Tensor] = {}
        for name in sorted(set(places.values())):
            if Path(name).name != name:
                raise CheckpointError(f"{index} names {name!r}, which is outside the folder")
            tensors |= load_file(path / name)
    except (OSError, SafetensorError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise CheckpointError(f"cannot load the weights in {path}: {type(error).__name__}: {error}") from error
    if astray := sorted(tensors.keys() ^ places.keys()):
        raise CheckpointError(f"{index} and the files it names differ in {', '.join(astray[:5])}; get the folder again")
    return tensors


def _check_tensors(path: Path, tensors: Mapping[str, Tensor], config: Qwen2Config) -> None:
    with LOADING, torch.device("meta"):
        expected = {name: tuple(tensor.shape) for name, tensor in Qwen2ForCausalLM(config).state_dict().items()}
    if HEAD_BIAS in tensors:
        expected[HEAD_BIAS] = (config.vocab_size,)
    found = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    wrong = sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))
    if wrong:
        name = wrong[0]
        shown = [
            list(shape) if shape is not None else "no such tensor" for shape in (found.get(name), expected.get(name))
        ]
        raise CheckpointError(
            f"{path}: {len(wrong)} tensors do not fit its config.json, first {name}: found {shown[0]}, expected {shown[1]}"
        )
