"""Utterances -> rollouts: requests to an engine, each distinct code sequence decoded once, outcomes typed."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elocution.codecs.base import Codec
from elocution.policies.base import Policy
from elocution.rollout.base import RolloutEngine, RolloutRequest
from elocution.rollout.outcomes import classify_outcome
from elocution.types import Audio, FinishReason, Rollout, Utterance

__all__ = ["SpeakTimes", "Speaker", "SpokenGroup", "token_budget"]


def token_budget(text: str, *, max_codes_per_char: float, min_codes: int) -> int:
    """How many ids a completion of `text` may have: in proportion to its characters, the stop id included."""
    return max(min_codes, round(max_codes_per_char * len(text))) + 1


@dataclass(frozen=True)
class SpokenGroup:
    """The rollouts of one utterance, not scored yet."""

    utterance: Utterance
    prompt_ids: NDArray[np.int64]
    rollouts: tuple[Rollout, ...]


@dataclass(frozen=True)
class SpeakTimes:
    """Units: seconds."""

    rollout_s: float
    decode_s: float


class Speaker:
    """Speaks utterances with an engine and a codec; holds no state of its own."""

    def __init__(
        self,
        policy: Policy,
        engine: RolloutEngine,
        codec: Codec,
        *,
        max_codes_per_char: float,
        min_codes: int,
        keep_truncated: bool = False,
    ) -> None:
        """`keep_truncated` takes a completion that used up its budget for one that ended there, not for a runaway."""
        self._policy, self._engine, self._codec = policy, engine, codec
        self._max_codes_per_char, self._min_codes = max_codes_per_char, min_codes
        self._keep_truncated = keep_truncated

    def check(self, utterance: Utterance) -> str | None:
        """Why the utterance cannot be spoken, by its words or by its length, or None."""
        if reason := self._policy.check_text(utterance):
            return reason
        prompt, budget = len(self._policy.prompt_ids(utterance)), self._budget(utterance)
        if prompt + budget > self._policy.max_positions:
            return (
                f"the prompt's {prompt} tokens and a budget of {budget} exceed the model's {self._policy.max_positions} "
                "positions; shorten the text, or lower rollout.max_codes_per_char or rollout.min_codes"
            )
        return None

    def speak(
        self, utterances: Sequence[Utterance], seeds: Sequence[Sequence[tuple[int, ...]]]
    ) -> tuple[list[SpokenGroup], SpeakTimes]:
        """One rollout for each seed of each utterance, in order, and what the two stages took."""
        started = time.perf_counter()
        requests = [
            RolloutRequest(
                self._policy.prompt_ids(utterance),
                tuple(own),
                self._budget(utterance),
            )
            for utterance, own in zip(utterances, seeds, strict=True)
        ]
        completions = self._engine.generate(requests)
        drawn = time.perf_counter()
        codes = [[self._policy.codes(completion.ids) for completion in group] for group in completions]
        audio = self._decode([clip for group in codes for clip in group if len(clip)])
        groups = []
        for utterance, request, group, clips in zip(utterances, requests, completions, codes, strict=True):
            rollouts = []
            for completion, clip in zip(group, clips, strict=True):
                sound = audio[clip.tobytes()] if len(clip) else None
                reason = FinishReason.STOP if self._keep_truncated else completion.finish_reason
                outcome = classify_outcome(clip, sound, reason)
                rollouts.append(Rollout(utterance, completion, clip, sound, outcome))
            groups.append(SpokenGroup(utterance, request.prompt_ids, tuple(rollouts)))
        return groups, SpeakTimes(drawn - started, time.perf_counter() - drawn)

    def _budget(self, utterance: Utterance) -> int:
        return token_budget(utterance.text, max_codes_per_char=self._max_codes_per_char, min_codes=self._min_codes)

    def _decode(self, clips: Sequence[NDArray[np.int64]]) -> dict[bytes, Audio]:
        distinct = {clip.tobytes(): clip for clip in clips}
        return dict(zip(distinct, self._codec.decode(list(distinct.values())), strict=True))
