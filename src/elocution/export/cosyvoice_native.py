"""CosyVoice's own `llm.pt`: read without running any code in it, checked key by key, computed with, and written.

Knows nothing of Hugging Face layouts. Source: `Qwen2LM` and `CosyVoice3LM` of FunAudioLLM/CosyVoice.
"""

import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import Qwen2Config, Qwen2ForCausalLM

from elocution.errors import CheckpointError
from elocution.files import reporting_disk_errors
from elocution.loading import LOADING
from elocution.policies.cosyvoice_ids import V2_STOPS, V3_CONTROLS
from elocution.policies.weights import check_values

__all__ = [
    "BIAS",
    "BODY",
    "EMBEDDING",
    "HEAD",
    "SPECIAL",
    "TEXT",
    "NativeModel",
    "native_logits",
    "read_native",
    "write_native",
]

BODY = "llm.model."
"""Begins the names of all tensors of the Qwen2."""
TEXT = f"{BODY}model.embed_tokens.weight"
EMBEDDING = "speech_embedding.weight"
HEAD = "llm_decoder.weight"
BIAS = "llm_decoder.bias"
SPECIAL = "llm_embedding.weight"
"""The start and the task token, which are rows of the speech embedding in CosyVoice3."""


@dataclass(frozen=True)
class NativeModel:
    """The tensors of an `llm.pt` by name, complete and of the right shapes. `generation` is 2 or 3, of CosyVoice."""

    generation: int
    tensors: Mapping[str, Tensor]

    @property
    def num_codes(self) -> int:
        return len(self.tensors[EMBEDDING]) - (V2_STOPS if self.generation == 2 else V3_CONTROLS)


def read_native(path: Path, config: Qwen2Config) -> NativeModel:
    """The file `path`, whose Qwen2 has the sizes of `config`; which CosyVoice it is, is told by its tables.

    Raises: CheckpointError if it holds anything but tensors, lacks one, has one too many or of another shape, or values are
    not finite.
    """
    if not path.is_file():
        raise CheckpointError(f"there is no file {path}; name an llm.pt, or the model folder that has one")
    try:
        loaded: object = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise CheckpointError(
            f"{path} holds more than weights, and loading the rest would run code from the file: it was not loaded. "
            "Get the file again from a source that you trust, or write it with torch.save(model.state_dict(), …)"
        ) from error
    except Exception as error:  # a damaged archive may end in any error of the reader
        raise CheckpointError(f"cannot load {path}, get it again: {type(error).__name__}: {error}") from error
    if not isinstance(loaded, dict) or not loaded:
        raise CheckpointError(f"{path} must hold tensors by name, found {type(loaded).__name__}")
    others = sorted(str(name) for name, value in loaded.items() if not isinstance(value, Tensor))
    if others:
        raise CheckpointError(f"{path} holds entries that are no tensors: {', '.join(others[:5])}; remove them")
    tensors: dict[str, Tensor] = {str(name): tensor for name, tensor in loaded.items()}
    generation = _generation(path, tensors)
    _check_shapes(path, tensors, _expected(path, tensors, generation, config))
    check_values(path, tensors.items())
    return NativeModel(generation, tensors)


def write_native(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Writes `tensors` as `torch.load` of the native class reads them; no part of a larger tensor is written with them.

    Raises: StorageError if the disk is full or the place cannot be written.
    """
    copies = {id(tensor): tensor.contiguous().clone() for tensor in tensors.values()}  # a tied head stays tied
    with reporting_disk_errors(path):
        torch.save({name: copies[id(tensor)] for name, tensor in tensors.items()}, path)


@torch.inference_mode()
def native_logits(native: NativeModel, config: Qwen2Config, text_ids: Tensor, codes: Tensor) -> Tensor:
    """Logits over the rows of the speech head after the prompt `text_ids` and after each of `codes`, in fp32.

    Shapes: `text_ids` [N]; `codes` [F]; returns [F + 1, R].
    """
    tensors = {name: tensor.float() for name, tensor in native.tensors.items()}
    with LOADING:
        model = Qwen2ForCausalLM(_text_config(config, tensors))
    model.load_state_dict({name.removeprefix(BODY): each for name, each in tensors.items() if name.startswith(BODY)})
    speech = tensors[EMBEDDING]
    if native.generation == 2:
        sos, task = tensors[SPECIAL]
    else:
        sos, task = speech[native.num_codes], speech[native.num_codes + 2]
    read = torch.cat([sos[None], F.embedding(text_ids, tensors[TEXT]), task[None], F.embedding(codes, speech)])
    hidden: Tensor = model.eval().model(inputs_embeds=read[None]).last_hidden_state[0, len(text_ids) + 1 :]
    return F.linear(hidden, tensors[HEAD], tensors.get(BIAS))


def _generation(path: Path, tensors: Mapping[str, Tensor]) -> int:
    """Raises: CheckpointError if the file has parts of both, or of neither."""
    marks = {SPECIAL: SPECIAL in tensors, BIAS: BIAS in tensors}
    if EMBEDDING not in tensors or HEAD not in tensors:
        absent = ", ".join(name for name in (EMBEDDING, HEAD) if name not in tensors)
        raise CheckpointError(f"{path} is no llm.pt of CosyVoice2 or 3: it has no {absent}")
    if all(marks.values()):
        return 2
    if not any(marks.values()):
        return 3
    has, lacks = (next(name for name, there in marks.items() if there is wanted) for wanted in (True, False))
    raise CheckpointError(f"{path} has {has}, as CosyVoice2 does, but no {lacks}: a tensor is missing or too many")


def _expected(
    path: Path, tensors: Mapping[str, Tensor], generation: int, config: Qwen2Config
) -> dict[str, tuple[int, ...]]:
    """The names and shapes that the native class would ask for. Sizes of tables are the file's own."""
    if TEXT not in tensors:
        raise CheckpointError(f"{path} lacks {TEXT}; get it again")
    width = config.hidden_size
    with LOADING, torch.device("meta"):
        body = Qwen2ForCausalLM(_text_config(config, tensors)).state_dict()
    expected = {BODY + name: tuple(tensor.shape) for name, tensor in body.items()}
    rows = len(tensors[EMBEDDING])
    if rows <= (V2_STOPS if generation == 2 else V3_CONTROLS):
        raise CheckpointError(f"{path}: {EMBEDDING} has {rows} rows, too few for CosyVoice{generation}")
    expected |= {EMBEDDING: (rows, width), HEAD: (rows, width)}
    if generation == 2:
        expected |= {BIAS: (rows,), SPECIAL: (2, width)}
    return expected


def _text_config(config: Qwen2Config, tensors: Mapping[str, Tensor]) -> Qwen2Config:
    """`config` with the text table's own number of rows; an untied head, which the file has under its own name."""
    return Qwen2Config(**config.to_dict() | {"vocab_size": len(tensors[TEXT]), "tie_word_embeddings": False})


def _check_shapes(path: Path, tensors: Mapping[str, Tensor], expected: Mapping[str, tuple[int, ...]]) -> None:
    missing, extra = sorted(expected.keys() - tensors.keys()), sorted(tensors.keys() - expected.keys())
    if missing or extra:
        parts = [f"lacks {', '.join(missing[:5])}"] * bool(missing) + [f"has also {', '.join(extra[:5])}"] * bool(extra)
        raise CheckpointError(
            f"{path} {' and '.join(parts)} ({len(missing)} missing, {len(extra)} too many); "
            "the native class would refuse it too"
        )
    for name, shape in expected.items():
        if tuple(tensors[name].shape) != shape:
            raise CheckpointError(
                f"{path}: {name} has shape {list(tensors[name].shape)}, expected {list(shape)}; "
                "it does not belong to this config.json"
            )
