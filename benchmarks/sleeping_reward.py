"""A reward whose recogniser only takes its time, so that what is measured is everything around it."""

import time
from collections.abc import Callable

from elocution.config.tree import RewardConfig
from elocution.rewards.pool import ScoringPool
from elocution.rewards.wer_nll import Heard, SaidText, WerNllReward

__all__ = ["SLEEP_S", "SleepingReward"]

SLEEP_S = 0.1


def _listen(clip: SaidText) -> Heard:
    time.sleep(SLEEP_S)
    return Heard(clip[1], 0.0, 0.0)


def _build() -> Callable[[SaidText], Heard]:
    return _listen


class SleepingReward(WerNllReward):
    """The real reward over the real pool; hears every text, 0.1 s a clip."""

    def __init__(self, config: RewardConfig) -> None:
        super().__init__(config, ScoringPool(_build, workers=config.workers, timeout_s=config.timeout_s))
