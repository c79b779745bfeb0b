"""Trackio: a database on this machine, in the folder that `TRACKIO_DIR` names."""

from collections.abc import Mapping
from typing import Any

from elocution.measures.optional import import_optional
from elocution.train.trackers.base import Clip, Start

__all__ = ["TrackioTracker"]


class TrackioTracker:
    """A `Tracker`. A run that goes on is the one of the same name there."""

    def __init__(self, start: Start) -> None:
        self._trackio = _load()
        self._run = self._trackio.init(
            project=start.project, name=start.name, config=dict(start.config), resume="allow", embed=False
        )

    @classmethod
    def check(cls) -> None:
        _load()

    def numbers(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=step)

    def clip(self, step: int, clip: Clip) -> None:
        self._run.log({clip.name: self._trackio.Audio(str(clip.path), caption=clip.caption)}, step=step)

    def close(self) -> None:
        self._run.finish()


def _load() -> Any:
    return import_optional("trackio", package="trackio", install="pip install 'elocution[trackio]'")
