"""Weights & Biases: offline files in `wandb/` of the run, or its server."""

import hashlib
from collections.abc import Mapping
from typing import Any

from elocution.measures.optional import import_optional
from elocution.train.trackers.base import Clip, Start

__all__ = ["WandbTracker"]


class WandbTracker:
    """A `Tracker`. A run that goes on keeps its id there."""

    def __init__(self, start: Start) -> None:
        self._wandb = _load()
        self._run = self._wandb.init(
            project=start.project,
            name=start.name,
            id=hashlib.sha256(str(start.run.resolve()).encode()).hexdigest()[:16],
            dir=str(start.run),
            mode="offline" if start.offline else "online",
            resume="allow",
            config=dict(start.config),
        )

    @classmethod
    def check(cls) -> None:
        _load()

    def numbers(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=step)

    def clip(self, step: int, clip: Clip) -> None:
        self._run.log({clip.name: self._wandb.Audio(str(clip.path), caption=clip.caption)}, step=step)

    def close(self) -> None:
        self._run.finish()


def _load() -> Any:
    return import_optional("wandb", package="wandb", install="pip install 'elocution[wandb]'")
