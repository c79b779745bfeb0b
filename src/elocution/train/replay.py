"""Micro-batches on disk, so that an update that went wrong can be looked at and run again."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch

from elocution.files import reporting_disk_errors
from elocution.policies.base import PolicyBatch
from elocution.train.batch import LearnerBatch

__all__ = ["read_batches", "write_batches"]


def write_batches(path: Path, batches: Sequence[LearnerBatch]) -> None:
    """Writes the tensors of `batches`; `read_batches` gives them back.

    Raises: StorageError if the disk is full or read-only.
    """
    with reporting_disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save([asdict(batch) for batch in batches], path)


def read_batches(path: Path) -> list[LearnerBatch]:
    """What `write_batches` wrote, for `Learner.update`."""
    return [
        LearnerBatch(**{**fields, "policy": PolicyBatch(**fields["policy"])})
        for fields in torch.load(path, weights_only=True)
    ]
