"""Checkpoints: a folder that appears whole or not at all, and is checked before it is used.

`step_N/` holds `model/` (a checkpoint in the family's released layout, or an adapter and the name of its base),
`optimizer.pt`, `reward.json` with what the reward carries from step to step, if anything, `sampling/` with older weights where completions are still to be drawn from them, and `state.json` with
the step, a format number and the digest of every file.
"""

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from elocution.errors import CheckpointError
from elocution.files import reporting_disk_errors
from elocution.train.mirror import Snapshot, write_snapshots
from elocution.train.sharding import restore_optimizer

__all__ = [
    "Checkpoint",
    "latest_checkpoint",
    "load_optimizer",
    "load_reward_state",
    "point_best_at",
    "save_checkpoint",
    "verify_checkpoint",
]

FORMAT = 1
_SAMPLING = "sampling"
_REWARD = "reward.json"
_NO_SPACE = 1 << 20  # bytes; a write that failed with less than this free failed for want of space


@dataclass(frozen=True)
class Checkpoint:
    """A verified checkpoint on disk. `step` counts finished steps, `policy_version` optimiser steps."""

    path: Path
    step: int
    policy_version: int

    @property
    def model_path(self) -> Path:
        return self.path / "model"

    @property
    def sampling_path(self) -> Path:
        return self.path / _SAMPLING


def save_checkpoint(
    folder: Path,
    save_model: Callable[[str], None],
    optimizer_state: Mapping[str, Any],
    *,
    step: int,
    policy_version: int,
    keep: int,
    snapshots: Mapping[int, Snapshot] | None = None,
    reward_state: Mapping[str, Any] | None = None,
) -> Checkpoint:
    """Writes `folder/step_N` under a temporary name, renames it, then deletes all but the `keep` newest.

    `save_model` writes the weights into the folder that it is given, `optimizer_state` is whole; `snapshots` are older ones
    that the next steps need; `reward_state` is what JSON can hold.

    Raises: StorageError if the disk is full or read-only; nothing is left behind.
    """
    target, temporary = folder / f"step_{step}", folder / f".step_{step}.partial"
    with reporting_disk_errors(target):
        folder.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(temporary, ignore_errors=True)
        try:
            temporary.mkdir()
            if reward_state:
                (temporary / _REWARD).write_text(json.dumps(reward_state), encoding="utf-8")
            _write(temporary, save_model, optimizer_state, snapshots or {}, step=step, policy_version=policy_version)
            if target.exists():
                shutil.rmtree(target)
            os.replace(temporary, target)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
    best = (folder.parent / "best").resolve()
    for old in _steps(folder)[:-keep]:
        if (folder / f"step_{old}").resolve() != best:
            shutil.rmtree(folder / f"step_{old}")
    return Checkpoint(target, step, policy_version)


def _write(
    path: Path,
    save_model: Callable[[str], None],
    optimizer_state: Mapping[str, Any],
    snapshots: Mapping[int, Snapshot],
    *,
    step: int,
    policy_version: int,
) -> None:
    try:
        save_model(str(path / "model"))
        torch.save(dict(optimizer_state), path / "optimizer.pt")
        if snapshots:
            write_snapshots(path / _SAMPLING, snapshots)
    except (RuntimeError, SafetensorError) as error:  # torch and safetensors report a failed write in their own way
        if "No space left" in str(error) or shutil.disk_usage(path).free < _NO_SPACE:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error
        raise
    digests = {
        str(file.relative_to(path)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(path.rglob("*"))
        if file.is_file()
    }
    state = {"format": FORMAT, "step": step, "policy_version": policy_version, "files": digests}
    with (path / "state.json").open("w", encoding="utf-8") as stream:
        json.dump(state, stream, indent=2)
        stream.flush()
        os.fsync(stream.fileno())


def verify_checkpoint(path: Path) -> Checkpoint:
    """The checkpoint at `path`, every file compared with its digest.

    Raises: CheckpointError naming the file that is missing or not what was written.
    """
    state_path = path / "state.json"
    try:
        state = json.loads(state_path.read_text(encoding="utf-8"))
        kind, files = state["format"], state["files"]
        checkpoint = Checkpoint(path, state["step"], state["policy_version"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise CheckpointError(f"{path} is no whole checkpoint: cannot read {state_path.name}: {error}") from error
    if kind != FORMAT:
        raise CheckpointError(f"{path} has checkpoint format {kind}, this version reads format {FORMAT}")
    for name, digest in files.items():
        file = path / name
        if not file.is_file():
            raise CheckpointError(f"the checkpoint {path} is damaged: {name} is missing")
        if hashlib.sha256(file.read_bytes()).hexdigest() != digest:
            raise CheckpointError(
                f"the checkpoint {path} is damaged: {name} ({file.stat().st_size} bytes) is not what was written; "
                "delete the folder to resume from the one before"
            )
    return checkpoint


def latest_checkpoint(folder: Path) -> Checkpoint | None:
    """The newest checkpoint, verified, or None if there is none.

    Raises: CheckpointError if the newest is damaged; an older one is never taken silently.
    """
    steps = _steps(folder)
    return verify_checkpoint(folder / f"step_{steps[-1]}") if steps else None


def load_optimizer(checkpoint: Checkpoint, optimizer: torch.optim.Optimizer) -> None:
    """Restores the optimiser's state in place."""
    path = checkpoint.path / "optimizer.pt"
    restore_optimizer(optimizer, torch.load(path, weights_only=True, map_location="cpu"))


def load_reward_state(checkpoint: Checkpoint) -> dict[str, Any]:
    """What the reward carried when the checkpoint was made; empty for a reward that carries nothing."""
    path = checkpoint.path / _REWARD
    if not path.is_file():
        return {}
    state: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return state


def point_best_at(run: Path, checkpoint: Checkpoint) -> None:
    """Makes `run/best` a link to the checkpoint."""
    temporary = run / ".best.partial"
    with reporting_disk_errors(run / "best"):
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(checkpoint.path.relative_to(run))
        os.replace(temporary, run / "best")


def _steps(folder: Path) -> list[int]:
    if not folder.is_dir():
        return []
    names = (path.name.removeprefix("step_") for path in folder.glob("step_*") if path.is_dir())
    return sorted(int(name) for name in names if name.isdecimal())
