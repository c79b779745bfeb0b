"""Trained models -> folders that transformers and peft open by themselves; each is opened again and compared before it
appears."""

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, PreTrainedModel

from elocution.assets import resolve_path
from elocution.errors import ExportError
from elocution.export.new_target import write_new
from elocution.export.source import ExportSource
from elocution.files import apply_umask, write_text_atomically
from elocution.loading import LOADING
from elocution.policies import load_policy
from elocution.policies.base import Policy
from elocution.policies.biased_head import HEAD_BIAS
from elocution.policies.lora import is_adapter, merged_state_dict, recorded_base
from elocution.types import Utterance

__all__ = ["DTYPES", "export_adapter", "export_model"]

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}

_PROBE = Utterance("probe", "the little brother was young")
_TOLERANCE = 1e-4  # of the largest logit: an adapter beside its weight, or merged, is summed in another order


def export_model(source: ExportSource, target: Path, *, dtype: str = "fp32") -> float:
    """Writes the model into the new folder `target`, an adapter merged into it; `dtype` is a row of `DTYPES`.

    Returns the largest difference between logits of the model and of what `AutoModelForCausalLM` makes of the folder.
    Generation there ends at the family's stop ids, whatever the tokenizer calls its end.

    Raises: ExportError if `target` exists, or holds another model than was written.
    """
    policy = load_policy(source.family, source.path)
    model = _transformers_model(policy)

    def write(folder: Path) -> float:
        policy.save_pretrained(str(folder))
        if dtype != "fp32":
            loaded = _load(folder, DTYPES[dtype])
            loaded.save_pretrained(folder)
            apply_umask(*folder.glob("*.safetensors"))
        stops = sorted(policy.stop_ids)
        generation = GenerationConfig.from_dict(model.generation_config.to_dict() if model.generation_config else {})
        generation.eos_token_id = stops[0] if len(stops) == 1 else stops
        generation.save_pretrained(folder)
        return _compare_model(policy, folder, dtype)

    return write_new(target, write)


def export_adapter(source: ExportSource, target: Path, *, base: str | None = None) -> float:
    """Writes the adapter alone into the new folder `target`, as peft reads it; `base` is the name that it gives its base.

    Returns the largest difference between logits of the trained model and of what `PeftModel` makes of base and folder.

    Raises: ExportError if the source is no adapter, `target` exists, or peft makes another model of it.
    """
    if not is_adapter(source.path):
        raise ExportError(f"{source.path} is no adapter: all its weights were trained; export it as a model")
    policy = load_policy(source.family, source.path)
    base_path = resolve_path(recorded_base(source.path).path)

    def write(folder: Path) -> float:
        shutil.copytree(source.path, folder)
        config = folder / "adapter_config.json"
        written = json.loads(config.read_text(encoding="utf-8"))
        written["base_model_name_or_path"] = base or str(base_path.resolve())
        write_text_atomically(config, json.dumps(written, indent=2, sort_keys=True) + "\n")
        whole = _load(base_path, torch.float32)
        return _compare_logits(policy, PeftModel.from_pretrained(whole, folder), folder)

    return write_new(target, write)


def _load(folder: Path, dtype: torch.dtype) -> Any:
    with LOADING:
        return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, local_files_only=True)


def _transformers_model(policy: Policy) -> PreTrainedModel:
    if not isinstance(policy.model, PreTrainedModel):
        raise ExportError(f"{type(policy).__name__} holds no model of transformers; it has a layout of its own")
    if HEAD_BIAS in policy.model.state_dict():
        raise ExportError(
            "transformers would drop the bias of this model's speech head; a run's checkpoints are Hugging Face folders with "
            "it, and `elocution convert cosyvoice2 to-native` writes llm.pt"
        )
    return policy.model


def _compare_model(policy: Policy, folder: Path, dtype: str) -> float:
    """Raises: ExportError unless the folder's tensors, ids and logits are the policy's."""
    loaded = _load(folder, DTYPES[dtype])
    state: dict[str, Tensor] = loaded.state_dict()
    for name, tensor in merged_state_dict(policy.model).items():
        if name not in state or not torch.equal(state[name], tensor.to(state[name].dtype)):
            raise ExportError(f"the tensor {name} in {folder} is not the one that was to be written; export again")
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    ids = policy.prompt_ids(_PROBE).tolist()
    text = tokenizer.decode(ids)
    if tokenizer.encode(text, add_special_tokens=False) != ids:
        raise ExportError(f"the tokenizer in {folder} reads a prompt as other ids than the policy's; export again")
    return _compare_logits(policy, loaded.float(), folder, tolerance=_TOLERANCE if dtype == "fp32" else None)


@torch.inference_mode()
def _compare_logits(policy: Policy, model: Any, folder: Path, *, tolerance: float | None = _TOLERANCE) -> float:
    """The largest difference at a prompt; without `tolerance` any is allowed that is a number."""
    ids = torch.from_numpy(policy.prompt_ids(_PROBE))[None]
    wanted: Tensor = policy.model(input_ids=ids).logits
    found: Tensor = model(input_ids=ids).logits
    difference = float((found - wanted).abs().max())
    bound = float("inf") if tolerance is None else tolerance * float(wanted.abs().max())
    if not difference <= bound or difference == float("inf"):
        raise ExportError(f"{folder} gives other logits than the trained model: they differ by {difference:.3g}")
    return difference
