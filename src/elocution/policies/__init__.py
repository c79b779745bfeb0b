"""Model families by name."""

from pathlib import Path

import torch

from elocution.assets import resolve_path
from elocution.policies.base import Policy
from elocution.registry import import_part

__all__ = ["FAMILIES", "PRECISIONS", "Policy", "load_policy"]

FAMILIES = {"llasa": "elocution.policies.llasa:LlasaPolicy"}


PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16}


def load_policy(family: str, path: Path, *, precision: str = "fp32") -> Policy:
    """A checkpoint of `family` (a row of the table or `module:Class`) from the folder `path`.

    Weights are held in fp32; `precision`, a row of `PRECISIONS`, is that of matrix products. A folder that holds an
    adapter is loaded together with its base, which it names.

    Raises: CheckpointError if a file is missing or damaged, or an adapter's base is not the one that it was.
    """
    from elocution.policies.lora import is_adapter, load_adapter, read_base

    whole = resolve_path(read_base(path).path) if is_adapter(path) else path
    policy: Policy = import_part("model family", family, FAMILIES).from_pretrained(
        whole, compute_dtype=PRECISIONS[precision]
    )
    if whole != path:
        load_adapter(policy.model, path)
    return policy
