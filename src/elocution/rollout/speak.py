"""Utterances -> rollouts: requests to an engine, each distinct code sequence decoded once, outcomes typed."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elocution.codecs.base import Codec
from elocution.policies.base import Policy
from elocution.rollout.base import RolloutEngine, RolloutRequest, in_order
from elocution.rollout.outcomes import classify_outcome
from elocution.types import Audio, Completion, FinishReason, Rollout, Utterance

__all__ = ["Speaker", "SpokenGroup", "token_budget"]


def token_budget(text: str, *, max_codes_per_char: float, min_codes: int) -> int:
    """How many ids a completion of `text` may have: in proportion to its characters, the stop id included."""
    return max(min_codes, round(max_codes_per_char * len(text))) + 1


@dataclass(frozen=True)
class SpokenGroup:
    """The rollouts of one utterance, not scored yet."""

    utterance: Utterance
    prompt_ids: NDArray[np.int64]
    rollouts: tuple[Rollout, ...]


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

    def speak(self, utterances: Sequence[Utterance], seeds: Sequence[Sequence[tuple[int, ...]]]) -> list[SpokenGroup]:
        """One rollout for each seed of each utterance, in order."""
        requests = self.requests(utterances, seeds)
        completions = in_order(requests, self._engine.stream(requests))
        rows = [(u, completion) for u, group in zip(utterances, completions, strict=True) for completion in group]
        rollouts = iter(self.voice(rows, {}))
        return [
            SpokenGroup(utterance, request.prompt_ids, tuple(next(rollouts) for _ in group))
            for utterance, request, group in zip(utterances, requests, completions, strict=True)
        ]

    def requests(
        self, utterances: Sequence[Utterance], seeds: Sequence[Sequence[tuple[int, ...]]]
    ) -> list[RolloutRequest]:
        """What to ask the engine for: one completion for each seed of each utterance."""
        return [
            RolloutRequest(
                self._policy.prompt_ids(utterance),
                tuple(own),
                self._budget(utterance),
            )
            for utterance, own in zip(utterances, seeds, strict=True)
        ]

    def _budget(self, utterance: Utterance) -> int:
        return token_budget(utterance.text, max_codes_per_char=self._max_codes_per_char, min_codes=self._min_codes)

    def voice(self, rows: Sequence[tuple[Utterance, Completion]], known: dict[bytes, Audio]) -> list[Rollout]:
        """Makes completions audible. `known` holds the clips of codes that were decoded before, and gets the new ones."""
        codes = [self._policy.codes(completion.ids) for _, completion in rows]
        new = {clip.tobytes(): clip for clip in codes if len(clip) and clip.tobytes() not in known}
        if new:
            known.update(zip(new, self._codec.decode(list(new.values())), strict=True))
        rollouts = []
        for (utterance, completion), clip in zip(rows, codes, strict=True):
            sound = known[clip.tobytes()] if len(clip) else None
            reason = FinishReason.STOP if self._keep_truncated else completion.finish_reason
            rollouts.append(Rollout(utterance, completion, clip, sound, classify_outcome(clip, sound, reason)))
        return rollouts
