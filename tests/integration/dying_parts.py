"""Parts of a run that kill their own process at one place, as a crash would: `python dying_parts.py RUN PLACE SETTING…`.

Nothing happens before the run has recorded its first step, and nothing at all where no place is named.
"""

import math
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from elocution.codecs.tiny import TinyCodec
from elocution.config.load import load_config
from elocution.config.tree import RewardConfig
from elocution.policies.base import IncrementalModel, PolicyBatch
from elocution.policies.llasa import LlasaPolicy
from elocution.rewards.base import Known
from elocution.types import Audio, Rollout, Score

__all__ = ["DyingCodec", "DyingPolicy", "DyingReward", "Mute", "NanPolicy"]

PLACES = ("draw", "decode", "score", "learn", "record", "save")


def _pass(place: str) -> None:
    run = os.environ.get("DYING_RUN", "")
    if os.environ.get("DYING_PLACE") != place:
        return
    metrics = Path(run) / "metrics.jsonl"
    if metrics.is_file() and metrics.read_text().count("\n") >= 1:
        os.kill(os.getpid(), signal.SIGKILL)


class DyingPolicy(LlasaPolicy):
    """Dies before it samples with new weights, within an update, or within a checkpoint."""

    def incremental(self, *, compiled: bool = True) -> IncrementalModel:
        _pass("draw")
        return super().incremental(compiled=compiled)

    def logprobs(self, batch: PolicyBatch, *, temperature: float, entropy_grad: bool = False) -> tuple[Tensor, Tensor]:
        _pass("learn")
        return super().logprobs(batch, temperature=temperature, entropy_grad=entropy_grad)

    def save_pretrained(self, path: str) -> None:
        super().save_pretrained(path)
        _pass("save")


class NanPolicy(LlasaPolicy):
    """Samples well, and learns from log-probs that are no numbers."""

    def logprobs(self, batch: PolicyBatch, *, temperature: float, entropy_grad: bool = False) -> tuple[Tensor, Tensor]:
        logprobs, entropy = super().logprobs(batch, temperature=temperature, entropy_grad=entropy_grad)
        return logprobs * math.nan, entropy


class DyingCodec(TinyCodec):
    """Dies before it decodes."""

    def decode(self, codes: Sequence[NDArray[np.int64]]) -> list[Audio]:
        _pass("decode")
        return super().decode(codes)


class DyingReward:
    """Prefers long completions; dies before it judges one."""

    def __init__(self, config: RewardConfig) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def __call__(self, rollouts: Sequence[Rollout]) -> list[Score]:
        return [self.start(rollout).result() for rollout in rollouts]

    def start(self, rollout: Rollout) -> Known[Score]:
        _pass("score")
        return Known(Score(len(rollout.codes) / 100))


class Mute:
    """A judge that hears nothing, and needs no time for it."""

    def transcribe(self, audio: Audio) -> str:
        return ""


def _record(stage: str, done: int, total: int, metrics: dict[str, Any]) -> None:
    if stage == "train":
        _pass("record")


if __name__ == "__main__":
    from elocution.train.loop import train

    os.environ["DYING_RUN"], os.environ["DYING_PLACE"] = sys.argv[1], sys.argv[2]
    train(load_config(None, sys.argv[3:]), Path(sys.argv[1]), progress=_record)
