"""Copies of the policy's weights, so that completions can be drawn from older ones while the learner moves on.

Knows no engine and no schedule.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from elocution.errors import CheckpointError
from elocution.policies.base import Policy
from elocution.train.sharding import whole

__all__ = ["Snapshot", "capture", "load_snapshot", "mirror_of", "read_snapshots", "write_snapshots"]


@dataclass(frozen=True)
class Snapshot:
    """The trained weights after `version` optimiser steps, by name; none where the policy's own are meant."""

    version: int
    tensors: Mapping[str, Tensor] = field(default_factory=dict)


def mirror_of(policy: Policy) -> Policy:
    """A copy of `policy` that another thread may use. Weights that are not trained are shared with it."""
    shared = {id(parameter): parameter for parameter in policy.model.parameters() if not parameter.requires_grad}
    mirror = copy.deepcopy(policy, memo=dict(shared))
    mirror.model.requires_grad_(False)
    return mirror


def capture(model: nn.Module, version: int) -> Snapshot:
    """A copy of the weights that are trained, whole where the model has shards; all processes must ask for those."""
    return Snapshot(
        version,
        {name: whole(tensor.detach()).clone() for name, tensor in model.named_parameters() if tensor.requires_grad},
    )


@torch.no_grad()
def load_snapshot(model: nn.Module, snapshot: Snapshot) -> None:
    """Overwrites the weights that `snapshot` names.

    Raises: KeyError if the model has no such weight.
    """
    parameters = dict(model.named_parameters())
    for name, tensor in snapshot.tensors.items():
        parameters[name].copy_(tensor)


def write_snapshots(folder: Path, snapshots: Mapping[int, Snapshot]) -> None:
    """Writes `step_N.safetensors` for each snapshot, by the step after which it was taken."""
    folder.mkdir()
    for step, snapshot in snapshots.items():
        metadata = {"format": "pt", "policy_version": str(snapshot.version)}
        save_file(dict(snapshot.tensors), folder / f"step_{step}.safetensors", metadata=metadata)


def read_snapshots(folder: Path) -> dict[int, Snapshot]:
    """What `write_snapshots` wrote into `folder`; nothing if there is no such folder.

    Raises: CheckpointError if a file is damaged.
    """
    snapshots = {}
    for path in sorted(folder.glob("step_*.safetensors")):
        try:
            with safe_open(path, framework="pt") as file:
                # Tensors of a file lie at any alignment: a copy sums in the same order as the weights it was taken from.
                tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118  (no mapping)
                snapshots[int(path.stem.removeprefix("step_"))] = Snapshot(
                    int(file.metadata()["policy_version"]), tensors
                )
        except (OSError, ValueError, KeyError, SafetensorError) as error:
            raise CheckpointError(f"cannot load the weights {path}: {error}") from error
    return snapshots
