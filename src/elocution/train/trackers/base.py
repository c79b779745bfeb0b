"""What an experiment tracker is told, and what it must be able to do."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

__all__ = ["Clip", "Start", "Tracker"]


@dataclass(frozen=True, slots=True)
class Start:
    """A run that begins, or goes on after `step`; `config` is its whole config."""

    run: Path
    project: str
    offline: bool
    config: Mapping[str, Any]
    step: int

    @property
    def name(self) -> str:
        return self.run.resolve().name


@dataclass(frozen=True, slots=True)
class Clip:
    """A WAV file, what it is called in a tracker, and words to show beside it."""

    name: str
    path: Path
    caption: str


class Tracker(Protocol):
    """Built from a `Start`. Steps never fall; a step may be told in several calls."""

    @classmethod
    def check(cls) -> None:
        """Raises: MissingDependency if its package is not installed."""

    def numbers(self, step: int, values: Mapping[str, float]) -> None:
        """Takes numbers of a step."""

    def clip(self, step: int, clip: Clip) -> None:
        """Takes a clip of a step."""

    def close(self) -> None:
        """Ends the run in the tracker; nothing is told afterwards."""
