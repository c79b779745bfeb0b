"""The values that pass between the parts of the loop; frozen, and free of torch.

Text becomes an `Utterance`; a policy answers it with `Completion`s; a codec turns each into audio, which
makes a `Rollout`; rewards add `Score`s; the rollouts of one utterance are a `RolloutGroup`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

__all__ = ["Audio", "Completion", "FinishReason", "Outcome", "Rollout", "RolloutGroup", "Score", "Utterance", "Voice"]


@dataclass(frozen=True, slots=True)
class Voice:
    """A recording in whose voice something is to be spoken: its exact words, its codes and its sound.

    Shapes: `codes` [F, Q] int64; F is 0 only where no policy speaks. `id` is the same for the same sound. `audio` is a file, or
    the bytes of one, which measures compare with; None where only the codes are known.
    """

    id: str
    text: str
    codes: NDArray[np.int64] = field(compare=False, repr=False)
    audio: Path | bytes | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Utterance:
    """A text to be spoken. `id` is unique in its file; `language` is an ISO 639-1 code.

    All completions share `voice`; without one, the policy chooses. `description` is what the clip should sound like, in English
    words, for measures. `instruction` tells a policy how to speak, and `emotion` names a feeling, which is the instruction
    where there is no other; only some families take them. Empty where a prompt has none.
    """

    id: str
    text: str
    language: str = "en"
    voice: Voice | None = None
    description: str = ""
    instruction: str = ""
    emotion: str = ""


@dataclass(frozen=True, slots=True)
class Audio:
    """Mono samples in [-1, 1] at `sample_rate` Hz. Shapes: `samples` [S], float32."""

    samples: NDArray[np.float32]
    sample_rate: int

    @property
    def duration_s(self) -> float:
        return len(self.samples) / self.sample_rate


class FinishReason(StrEnum):
    """Why a completion ended: a stop id was drawn, or the token budget ran out."""

    STOP = "stop"
    LENGTH = "length"


@dataclass(frozen=True, slots=True)
class Completion:
    """Token ids that a policy drew for one prompt.

    Shapes: `ids` [T, C] int64, the stop id included where one was drawn; `rollout_logprobs` [T, C] float32,
    nats, under the distribution that was sampled (restricted to legal ids, temperature applied).
    `policy_version` counts the optimiser steps that the sampling weights have had.
    """

    ids: NDArray[np.int64]
    rollout_logprobs: NDArray[np.float32]
    finish_reason: FinishReason
    policy_version: int


class Outcome(StrEnum):
    """What a completion turned out to be, before any reward looks at it.

    Only `SPEECH` is scored by listening. The others are the policy's fault and take the lowest reward.
    """

    SPEECH = "speech"
    EMPTY = "empty"
    SILENT = "silent"
    RUNAWAY = "runaway"


@dataclass(frozen=True, slots=True)
class Score:
    """One reward's verdict: a value, or the reason why there is none.

    `value` is None when the scorer failed (never the policy's fault); `error` then says why. `raw` keeps the
    measures behind the value (`wer`, `nll`), `transcript` what was heard, where something was. `parts` are the rewards
    that the value combines, higher is better, under the same names in every completion that has a value.
    """

    value: float | None
    raw: Mapping[str, float] = field(default_factory=dict)
    transcript: str | None = None
    error: str | None = None
    parts: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if (self.value is None) != (self.error is not None):
            raise ValueError(f"a score has either a value or an error, got {self.value} and {self.error!r}")
        if self.value is not None and not np.isfinite([self.value, *self.parts.values()]).all():
            raise ValueError(f"a score must be finite, got {self.value} of {dict(self.parts)}")
        if not np.isfinite([*self.raw.values()]).all():
            raise ValueError(f"measures must be finite or left out, got {dict(self.raw)}")


@dataclass(frozen=True, slots=True)
class Rollout:
    """One completion of `utterance` with what it sounds like.

    Shapes: `codes` [F, Q] int64; `actions` [T, C] bool, the cells of the completion that were a choice and are learnt from,
    all if None. `audio` is None where `outcome` is EMPTY.
    """

    utterance: Utterance
    completion: Completion
    codes: NDArray[np.int64]
    audio: Audio | None
    outcome: Outcome
    actions: NDArray[np.bool_] | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class RolloutGroup:
    """The scored completions of one utterance; `scores[i]` belongs to `rollouts[i]`."""

    utterance: Utterance
    prompt_ids: NDArray[np.int64]
    rollouts: tuple[Rollout, ...]
    scores: tuple[Score, ...]

    def __post_init__(self) -> None:
        if len(self.rollouts) != len(self.scores):
            raise ValueError(f"{len(self.rollouts)} rollouts but {len(self.scores)} scores")
