"""Recognisers that fail, importable by worker processes, and a reward of a user's own."""

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from elocution.config.tree import RewardConfig
from elocution.measures import Likelihood
from elocution.types import Audio, Rollout, Score

__all__ = ["LongestWins", "RaisesOnLoudClips", "RaisesWhenScoring"]


class RaisesOnLoudClips:
    """Hears nothing wrong, but fails where a sample is louder than 0.9."""

    def transcribe(self, audio: Audio) -> str:
        if abs(audio.samples).max() > 0.9:
            raise RuntimeError("the recogniser is down")
        return "nine nine seven one"


class RaisesWhenScoring:
    """Fails on everything."""

    def score(self, audio: Audio, text: str) -> Likelihood:
        raise RuntimeError("the phoneme scorer is down")


class LongestWins:
    """Rewards codes; knows nothing of sound."""

    def __init__(self, config: RewardConfig) -> None:
        self.config = config

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def __call__(self, rollouts: Sequence[Rollout]) -> list[Score]:
        return [Score(value=float(len(rollout.codes))) for rollout in rollouts]
