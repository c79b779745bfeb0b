"""CosyVoice's `llm.pt` <-> the Hugging Face folder that is trained, each opened again and compared before it appears."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import GenerationConfig, Qwen2Config

from elocution.assets import resolve_path
from elocution.config.load import load_config
from elocution.errors import CheckpointError, ExportError
from elocution.export.cosyvoice_folder import SpeechFolder, read_folder, read_rest, write_rest
from elocution.export.cosyvoice_native import BIAS, HEAD, NativeModel, native_logits, read_native, write_native
from elocution.export.cosyvoice_tables import NativeRest, merge_tables, rest_of, split_tables
from elocution.export.cosyvoice_tokens import build_tokenizer, describe_v3
from elocution.export.new_target import write_new
from elocution.export.source import find_source
from elocution.files import apply_umask, write_text_atomically
from elocution.policies import load_policy
from elocution.policies.biased_head import HEAD_BIAS
from elocution.policies.cosyvoice_ids import SpeechIds
from elocution.policies.llama_config import read_llama_config

__all__ = ["DTYPES", "TEXT_MODEL", "Conversion", "HeadDifference", "to_huggingface", "to_native"]

DTYPES = {"keep": None, "fp32": torch.float32, "bf16": torch.bfloat16}
TEXT_MODEL = "CosyVoice-BlankEN"
"""The folder beside `llm.pt` that has the text model's config and tokenizer."""

_TOLERANCE = 1e-5  # of the largest logit: heads of different sizes sum in another order
_PROBE_TEXT, _PROBE_CODES = "the little brother was young", 32


@dataclass(frozen=True)
class HeadDifference:
    """What a head without its bias computes, over probe positions. Units: nats; `escaped` is a share of 1.

    `logprob` is the largest difference of a log-prob over the rows of speech, `kl` the mean KL from the model with bias;
    `escaped` is the mean probability that software which draws from the whole vocabulary gives to ids without speech.
    """

    logprob: float
    kl: float
    escaped: float


@dataclass(frozen=True)
class Conversion:
    """What was written. `logits` is the largest difference between both models' logits; `tensors` counts native ones."""

    ids: SpeechIds
    tensors: int
    logits: float
    without_bias: HeadDifference | None = None


def to_huggingface(
    source: Path,
    target: Path,
    *,
    dtype: str = "keep",
    bias: Literal["keep", "drop"] = "keep",
    text_model: Path | None = None,
) -> Conversion:
    """Writes the new folder `target` from `source`, an `llm.pt` or the model folder with one.

    `dtype` is a row of `DTYPES`; `text_model` has the Qwen2's config and tokenizer.

    Raises: CheckpointError if the source is not whole; ExportError if `target` exists, or computes something else.
    """
    weights = source / "llm.pt" if source.is_dir() else source
    text_model = text_model or weights.parent / TEXT_MODEL
    if not (text_model / "config.json").is_file():
        raise CheckpointError(f"{text_model} has no config.json; name the folder of the text model with --text-model")
    config: Any = read_llama_config(text_model / "config.json", family="cosyvoice2", model_types=("qwen2",))
    native = read_native(weights, config)
    _check_recipe(weights.parent, native.generation)
    native = _cast(native, dtype)
    tokenizer, ids = build_tokenizer(text_model, "v2" if native.generation == 2 else "v3", native.num_codes)
    merged = merge_tables(native, ids, with_bias=bias == "keep")

    def write(folder: Path) -> Conversion:
        folder.mkdir()
        size = len(merged["lm_head.weight"])
        save_file(
            {name: tensor.contiguous() for name, tensor in merged.items()},
            folder / "model.safetensors",
            {"format": "pt"},
        )
        apply_umask(folder / "model.safetensors")
        write_rest(folder, rest_of(native, ids.first_code))
        tokenizer.save_pretrained(folder)
        written = json.loads((text_model / "config.json").read_text(encoding="utf-8"))
        stored = str(native.tensors[HEAD].dtype).removeprefix("torch.")
        changes = {
            "architectures": ["Qwen2ForCausalLM"],
            "vocab_size": size,
            "tie_word_embeddings": False,
            "dtype": stored,
        }
        changes |= {"eos_token_id": ids.eos, "use_bias": native.generation == 2, "codec_frame_rate": 25.0}
        written.pop("torch_dtype", None)
        write_text_atomically(folder / "config.json", json.dumps(written | changes, indent=2) + "\n")
        _generation_config(ids).save_pretrained(folder)
        if native.generation == 3:
            text = describe_v3(ids, base_vocab_size=config.vocab_size, padded_vocab_size=size, dtype=stored)
            write_text_atomically(folder / "cosyvoice3_metadata.json", text)
        again = read_folder(folder)
        difference = _compare(native, config, again, with_bias=bias == "keep")
        measured = _measure(native, config, again) if bias == "drop" and BIAS in native.tensors else None
        return Conversion(ids, len(native.tensors), difference, measured)

    return write_new(target, write)


def to_native(
    source: Path, target: Path, *, dtype: str = "keep", original: Path | None = None, zero_bias: bool = False
) -> Conversion:
    """Writes the new file `target` from `source`: a folder, a checkpoint, or a run (its best checkpoint).

    What the folder has no place for comes from `original`, the `llm.pt` or model folder that it was made from, else from what
    was kept beside it or beside the run's base. `zero_bias` writes a bias of 0 where the folder has none.

    Raises: CheckpointError if the source is not whole; ExportError if `target` exists, or computes something else.
    """
    found = find_source(source)
    folder = read_folder(found.path, family=found.family)
    if original is not None:
        rest = rest_of(_read_original(original, folder), folder.ids.first_code)
    else:
        rest = read_rest(found.path, *_base_of(source))
    if zero_bias and folder.ids.generation == 2 and HEAD_BIAS not in folder.tensors:
        zeros = torch.zeros(len(folder.ids.rows), dtype=folder.tensors["lm_head.weight"].dtype)
        rest = NativeRest({**rest.tensors, BIAS: zeros})
    native = _cast(split_tables(folder.tensors, folder.ids, rest), dtype)

    def write(file: Path) -> Conversion:
        write_native(file, native.tensors)
        again = read_native(file, folder.config)
        if again.generation != native.generation or any(
            not torch.equal(tensor, native.tensors[name]) for name, tensor in again.tensors.items()
        ):
            raise ExportError(f"{file} holds other tensors than were written; export again")
        has_bias = HEAD_BIAS in folder.tensors or native.generation == 3
        difference = _compare(again, folder.config, folder, with_bias=has_bias)
        measured = None if has_bias else _measure(again, folder.config, folder)
        return Conversion(folder.ids, len(again.tensors), difference, measured)

    return write_new(target, write)


def _check_recipe(folder: Path, generation: int) -> None:
    """Raises: CheckpointError if the folder's yaml is that of the other CosyVoice."""
    named = [number for number in (2, 3) if (folder / f"cosyvoice{number}.yaml").is_file()]
    if named and generation not in named:
        raise CheckpointError(
            f"{folder} has cosyvoice{named[0]}.yaml, but its llm.pt has the tables of CosyVoice{generation}; "
            "the two do not belong together"
        )


def _cast(native: NativeModel, dtype: str) -> NativeModel:
    wanted = DTYPES[dtype]
    if wanted is None:
        return native
    copies = {id(tensor): tensor.to(wanted) for tensor in native.tensors.values()}
    return replace(native, tensors={name: copies[id(tensor)] for name, tensor in native.tensors.items()})


def _generation_config(ids: SpeechIds) -> GenerationConfig:
    """The published sampling; ends at every id that ends speech natively."""
    published: dict[str, Any] = {"temperature": 1.0, "top_p": 0.8, "top_k": 25}
    if ids.generation == 3:
        published = {"temperature": 0.8, "top_p": 0.95, "top_k": 25, "repetition_penalty": 1.1}
    return GenerationConfig(do_sample=True, eos_token_id=list(ids.stops), pad_token_id=ids.eos, **published)


def _read_original(original: Path, folder: SpeechFolder) -> NativeModel:
    weights = original / "llm.pt" if original.is_dir() else original
    native = read_native(weights, folder.config)
    if (native.generation, native.num_codes) != (folder.ids.generation, folder.ids.num_codes):
        raise CheckpointError(
            f"{weights} is CosyVoice{native.generation} with {native.num_codes} codes, {folder.path} is "
            f"CosyVoice{folder.ids.generation} with {folder.ids.num_codes}; name the one that the folder came from"
        )
    return native


def _base_of(source: Path) -> list[Path]:
    """The folder that the run around `source` began with, if there is one."""
    for folder in (source, *source.resolve().parents[:3]):
        if (folder / "config.toml").is_file():
            return [resolve_path(load_config(folder / "config.toml").model.path)]
    return []


@torch.inference_mode()
def _probe(native: NativeModel, config: Qwen2Config, folder: SpeechFolder) -> tuple[Tensor, Tensor]:
    """Logits of the native model over its rows, and of the folder's over its vocabulary. Shapes: [F + 1, R], [F + 1, V]."""
    text = torch.tensor(folder.tokenizer.encode(_PROBE_TEXT, add_special_tokens=False), dtype=torch.long)
    codes = torch.arange(_PROBE_CODES) * native.num_codes // _PROBE_CODES
    policy: Any = load_policy(folder.family, folder.path)
    speech = torch.from_numpy(folder.ids.rows)[codes]
    read = torch.cat([torch.tensor([folder.ids.sos]), text, torch.tensor([folder.ids.task]), speech])
    found: Tensor = policy.llama(input_ids=read[None]).logits[0, len(text) + 1 :]
    return native_logits(native, config, text, codes), found


def _compare(native: NativeModel, config: Qwen2Config, folder: SpeechFolder, *, with_bias: bool) -> float:
    """The largest difference of logits; a bias that the folder has not is left out on both sides.

    Raises: ExportError if they differ by more than rounding.
    """
    wanted, found = _probe(native, config, folder)
    if not with_bias and BIAS in native.tensors:
        wanted = wanted - native.tensors[BIAS].float()
    difference = float((found[:, torch.from_numpy(folder.ids.rows)] - wanted).abs().max())
    if not difference <= _TOLERANCE * float(wanted.abs().max()):
        raise ExportError(f"the native model and {folder.path} give logits that differ by {difference:.3g}")
    return difference


def _measure(native: NativeModel, config: Qwen2Config, folder: SpeechFolder) -> HeadDifference:
    wanted, found = _probe(native, config, folder)
    rows = torch.from_numpy(folder.ids.rows)
    before, after = wanted.log_softmax(dim=-1), found[:, rows].log_softmax(dim=-1)
    kl = (before.exp() * (before - after)).sum(dim=-1).mean()
    escaped = 1.0 - found.softmax(dim=-1)[:, rows].sum(dim=-1).mean()
    return HeadDifference(float((before - after).abs().max()), float(kl), float(escaped))
