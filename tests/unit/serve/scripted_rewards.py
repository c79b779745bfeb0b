"""Rewards that do what a text says, importable by the server and its scoring processes."""

import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from types import TracebackType
from typing import Self

from elocution.config.tree import RewardConfig
from elocution.measures import Likelihood
from elocution.rewards.pool import ScoringPool
from elocution.rewards.wer_nll import Heard, SaidText, WerNllReward
from elocution.types import Audio, Rollout, Score

__all__ = ["ByText", "CountsCalls", "HearsNothing", "SaysItsDevice"]


def _obey(clip: SaidText) -> Heard:
    _, text, _ = clip
    if text.startswith("hang"):
        time.sleep(3600)
    if text.startswith("raise"):
        raise RuntimeError("the recogniser is broken")
    return Heard(text, 0.0, float("nan") if text.startswith("nan") else 0.0)


class ByText(WerNllReward):
    """The real reward over the real pool, whose recogniser hangs, raises or answers NaN where the text begins so."""

    def __init__(self, config: RewardConfig) -> None:
        pool = ScoringPool(partial(_give, _obey), workers=config.workers, timeout_s=config.timeout_s)
        super().__init__(config, pool)


def _give(score: Callable[[SaidText], Heard]) -> Callable[[SaidText], Heard]:
    return score


class CountsCalls:
    """Gives every clip the number of clips it has scored before; a text `fail` has no score the first time."""

    def __init__(self, config: RewardConfig) -> None:
        self.count = 0
        self.failed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def __call__(self, rollouts: Sequence[Rollout]) -> list[Score]:
        return [self._score(rollout) for rollout in rollouts]

    def _score(self, rollout: Rollout) -> Score:
        if rollout.audio is None or not rollout.audio.samples.any():
            return Score(value=0.0)
        self.count += 1
        if rollout.utterance.text == "fail" and not self.failed:
            self.failed = True
            return Score(value=None, error="once")
        return Score(value=float(self.count))


class HearsNothing:
    """Recogniser and phoneme scorer to whom everything is silence."""

    def transcribe(self, audio: Audio) -> str:
        return ""

    def score(self, audio: Audio, text: str) -> Likelihood:
        return Likelihood(nll=10.0, num_wanted=10, num_heard=0)


class SaysItsDevice:
    """A recogniser and likelihood with a path: what it hears is where it runs and in which process."""

    def __init__(self, path: str, *, device: str) -> None:
        # In letters: a number in digits is read in several ways, as the text that it is compared with has it.
        self._says = f"{device} {''.join(chr(ord('a') + int(digit)) for digit in str(os.getpid()))}"

    def transcribe(self, audio: Audio) -> str:
        time.sleep(0.05)
        return self._says

    def score(self, audio: Audio, text: str) -> Likelihood:
        return Likelihood(nll=0.1, num_wanted=9, num_heard=9)
