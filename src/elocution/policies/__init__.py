"""Model families by name."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from elocution.assets import resolve_path
from elocution.config.tree import MossSettings
from elocution.policies.base import Policy
from elocution.registry import build_part, import_part

__all__ = ["FAMILIES", "PRECISIONS", "Policy", "find_family", "load_policy"]

FAMILIES = {
    "cosyvoice2": "elocution.policies.cosyvoice:CosyVoice2Policy",
    "cosyvoice3": "elocution.policies.cosyvoice:CosyVoice3Policy",
    "llasa": "elocution.policies.llasa:LlasaPolicy",
    "moss": "elocution.policies.moss:MossPolicy",
    "neutts": "elocution.policies.neutts:NeuTtsPolicy",
    "orpheus": "elocution.policies.orpheus:OrpheusPolicy",
    "spark": "elocution.policies.spark:SparkPolicy",
}


PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16}

_METHODS = (
    "from_pretrained",
    "check_text",
    "prompt_ids",
    "codes",
    "illegal_cells",
    "logprobs",
    "incremental",
    "save_pretrained",
)
_ATTRIBUTES = (
    *("model", "compute_dtype", "num_channels", "channel_sizes", "lora_targets", "legal_ids", "stop_ids"),
    *("max_positions", "num_codebooks", "codebook_size", "frame_rate"),
)


def find_family(family: str) -> Any:
    """The class of `family`, a row of the table or `module:Class`; nothing is loaded.

    Raises: ConfigError if there is no such family, or the class is none.
    """
    return import_part("model family", family, FAMILIES, methods=_METHODS)


def load_policy(
    family: str,
    path: Path,
    *,
    precision: str = "fp32",
    speaker: str = "",
    language_tags: Mapping[str, str] | None = None,
    moss: MossSettings | None = None,
) -> Policy:
    """A checkpoint of `family` (a row of the table or `module:Class`) from the folder `path`.

    Weights are held in fp32; `precision`, a row of `PRECISIONS`, is that of matrix products. A folder that holds an
    adapter is loaded together with its base, which it names. `speaker` and `language_tags` go into every prompt, in families
    that have them: `PromptStyle`; `moss` is for the family of that name.

    Raises: ConfigError if there is no such family, or the class is none; CheckpointError if a file is missing or damaged,
    or an adapter's base is not the one that it was.
    """
    from elocution.policies.lora import is_adapter, load_adapter, read_base
    from elocution.policies.speech_tokens import PromptStyle

    part = find_family(family)
    whole = resolve_path(read_base(path).path) if is_adapter(path) else path
    # A family of the user's own need not know of styles.
    style: dict[str, Any] = {"style": PromptStyle(speaker, language_tags or {})} if speaker or language_tags else {}
    if moss and moss != MossSettings():
        style["settings"] = moss
    policy: Policy = build_part(
        "model family",
        family,
        lambda: part.from_pretrained(whole, compute_dtype=PRECISIONS[precision], **style),
        attributes=_ATTRIBUTES,
    )
    if whole != path:
        load_adapter(policy.model, path)
    return policy
