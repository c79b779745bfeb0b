"""Model families by name."""

from pathlib import Path

import torch

from elocution.policies.base import Policy
from elocution.registry import import_part

__all__ = ["FAMILIES", "PRECISIONS", "Policy", "load_policy"]

FAMILIES = {"llasa": "elocution.policies.llasa:LlasaPolicy"}


PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16}


def load_policy(family: str, path: Path, *, precision: str = "fp32") -> Policy:
    """A checkpoint of `family` (a row of the table or `module:Class`) from the folder `path`.

    Weights are held in fp32; `precision`, a row of `PRECISIONS`, is that of matrix products.
    """
    policy: Policy = import_part("model family", family, FAMILIES).from_pretrained(
        path, compute_dtype=PRECISIONS[precision]
    )
    return policy
