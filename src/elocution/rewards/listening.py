"""What rewards share that listen in scoring processes: each clip heard once, together or one by one, and silence not at all."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from types import TracebackType
from typing import Generic, Self, TypeVar

from elocution.rewards.base import Derived, Known, Pending
from elocution.rewards.pool import ScoringPool
from elocution.types import Audio, Outcome, Rollout, Score, Utterance

__all__ = ["ListeningReward", "distinct_clips"]

Task = TypeVar("Task")
Found = TypeVar("Found")


def distinct_clips(rollouts: Sequence[Rollout]) -> tuple[dict[int, Audio], dict[int, int]]:
    """Which clips are to be heard, by the index of their rollout, the longest first, so that workers end together; and
    for each audible rollout, which of them is its own.

    Rollouts that share one audio object and all that was asked share a clip. Those without speech have none.
    """
    audible = {
        index: rollout.audio
        for index, rollout in enumerate(rollouts)
        if rollout.outcome is Outcome.SPEECH and rollout.audio is not None
    }
    firsts: dict[tuple[int, Utterance], int] = {}
    first_of = {}
    for index, audio in audible.items():
        first_of[index] = firsts.setdefault((id(audio), replace(rollouts[index].utterance, id="")), index)
    order = sorted(firsts.values(), key=lambda index: (-audible[index].duration_s, index))
    return {index: audible[index] for index in order}, first_of


class ListeningReward(ABC, Generic[Task, Found]):
    """A streaming reward: a worker finds something out about a clip, and that alone makes its score."""

    def __init__(self, pool: ScoringPool[Task, Found]) -> None:
        self._pool = pool

    def __enter__(self) -> Self:
        self._pool.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.__exit__(kind, error, trace)

    def __call__(self, rollouts: Sequence[Rollout]) -> list[Score]:
        """Clips that are the same are listened to once."""
        order, first_of = distinct_clips(rollouts)
        heard = self._pool.map([self._task(rollouts[index], audio) for index, audio in order.items()])
        found = dict(zip(order, heard, strict=True))
        return [
            self._judge(found[first_of[index]]) if index in first_of else self._without_speech(rollout)
            for index, rollout in enumerate(rollouts)
        ]

    def start(self, rollout: Rollout) -> Pending[Score]:
        if rollout.outcome is not Outcome.SPEECH or rollout.audio is None:
            return Known(self._without_speech(rollout))
        return Derived(self._pool.submit(self._task(rollout, rollout.audio)), self._judge)

    def _judge(self, found: Found | Exception) -> Score:
        if isinstance(found, Exception):
            return Score(value=None, error=f"{type(found).__name__}: {found}")
        return self._score(found)

    def _without_speech(self, rollout: Rollout) -> Score:
        if rollout.outcome is Outcome.SPEECH:
            return Score(value=None, error="the completion is marked as speech but has no audio")
        return self._floor()

    @abstractmethod
    def _task(self, rollout: Rollout, audio: Audio) -> Task:
        """What a worker is given."""

    @abstractmethod
    def _score(self, found: Found) -> Score:
        """The score of what a worker found."""

    @abstractmethod
    def _floor(self) -> Score:
        """The score of a completion without speech."""
