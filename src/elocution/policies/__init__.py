"""Model families by name."""

from pathlib import Path

from elocution.policies.base import Policy
from elocution.registry import import_part

__all__ = ["FAMILIES", "Policy", "load_policy"]

FAMILIES = {"llasa": "elocution.policies.llasa:LlasaPolicy"}


def load_policy(family: str, path: Path) -> Policy:
    """A checkpoint of `family` (a row of the table or `module:Class`) from the folder `path`, in fp32."""
    policy: Policy = import_part("model family", family, FAMILIES).from_pretrained(path)
    return policy
