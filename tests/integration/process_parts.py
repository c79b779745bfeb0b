"""Parts for runs of several processes: weights in fp64, and a reward that can end one of the processes."""

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch
from dying_parts import Mute

from elocution.config.tree import RewardConfig
from elocution.policies.llasa import LlasaPolicy
from elocution.types import Rollout, Score

__all__ = ["DoublePolicy", "Mute", "SignallingReward"]


class DoublePolicy(LlasaPolicy):
    """Weights and products in fp64, so that the order of sums changes no draw."""

    @classmethod
    def from_pretrained(cls, path: Path, **_: Any) -> "DoublePolicy":
        policy = super().from_pretrained(path, dtype=torch.float64)
        assert isinstance(policy, cls)
        return policy


class SignallingReward:
    """Prefers long completions. The process of rank SIGNAL_RANK gets SIGNAL_NAME when SIGNAL_AFTER steps are recorded."""

    def __init__(self, config: RewardConfig) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def __call__(self, rollouts: Sequence[Rollout]) -> list[Score]:
        metrics = Path(os.environ.get("SIGNAL_RUN", "")) / "metrics.jsonl"
        is_chosen = os.environ.get("RANK") == os.environ.get("SIGNAL_RANK", "")
        if is_chosen and metrics.is_file() and metrics.read_text().count("\n") >= int(os.environ["SIGNAL_AFTER"]):
            name = os.environ["SIGNAL_NAME"]
            if name == "ERROR":
                raise ValueError("the scorer of this process is broken")
            os.kill(os.getpid(), signal.Signals[name])
        return [Score(len(rollout.codes) / 100) for rollout in rollouts]
