"""Utterances -> rollouts: requests to an engine, each distinct code sequence decoded once, outcomes typed.

What was spoken in a given voice is decoded as one clip with the recording's codes before it, as the policy heard it, and
then cut: no reward or judge hears the recording.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elocution.codecs.base import Codec
from elocution.policies.base import ForcesCells, Policy
from elocution.rollout.base import RolloutEngine, RolloutRequest, in_order
from elocution.rollout.outcomes import classify_outcome
from elocution.types import Audio, Completion, FinishReason, Rollout, Utterance, Voice

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
        """Why the utterance cannot be spoken, by its voice, its words or its length, or None."""
        if utterance.voice and (reason := self._check_voice(utterance.voice)):
            return reason
        if reason := self._policy.check_text(utterance):
            return reason
        prompt, budget = len(self._policy.prompt_ids(utterance)), self._budget(utterance)
        if prompt + budget > self._policy.max_positions:
            return (
                f"the prompt's {prompt} tokens and a budget of {budget} exceed the model's {self._policy.max_positions} "
                "positions; shorten the text or its voice, or lower rollout.max_codes_per_char or rollout.min_codes"
            )
        return None

    def _check_voice(self, voice: Voice) -> str | None:
        books, size = self._policy.num_codebooks, self._policy.codebook_size
        codes = voice.codes
        if codes.ndim != 2 or codes.shape[1] != books or not len(codes):
            return f"the codes of its voice have shape {codes.shape}, the policy writes [F >= 1, {books}]"
        if codes.min() < 0 or codes.max() >= size:
            return f"the codes of its voice span {codes.min()}…{codes.max()}, the policy writes 0…{size - 1}"
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
        budget = token_budget(utterance.text, max_codes_per_char=self._max_codes_per_char, min_codes=self._min_codes)
        return budget + self._policy.flush_rows if isinstance(self._policy, ForcesCells) else budget

    def voice(self, rows: Sequence[tuple[Utterance, Completion]], known: dict[bytes, Audio]) -> list[Rollout]:
        """Makes completions audible. `known` holds the clips of codes that were decoded before, and gets the new ones."""
        codes = [self._policy.codes(completion.ids) for _, completion in rows]
        keys = [_key(utterance.voice, clip) for (utterance, _), clip in zip(rows, codes, strict=True)]
        new = {
            key: (utterance.voice, clip)
            for (utterance, _), clip, key in zip(rows, codes, keys, strict=True)
            if len(clip) and key not in known
        }
        if new:
            known.update(zip(new, self._decode(list(new.values())), strict=True))
        rollouts = []
        for (utterance, completion), clip, key in zip(rows, codes, keys, strict=True):
            sound = known[key] if len(clip) else None
            reason = FinishReason.STOP if self._keep_truncated else completion.finish_reason
            outcome = classify_outcome(clip, sound, reason)
            actions = self._policy.actions(completion.ids) if isinstance(self._policy, ForcesCells) else None
            rollouts.append(Rollout(utterance, completion, clip, sound, outcome, actions))
        return rollouts

    def _decode(self, clips: Sequence[tuple[Voice | None, NDArray[np.int64]]]) -> list[Audio]:
        """The sound of each clip's own codes, after those of its voice."""
        joint = [clip if voice is None else np.concatenate([voice.codes, clip]) for voice, clip in clips]
        return [
            audio if voice is None else self._cut(audio, len(voice.codes))
            for (voice, _), audio in zip(clips, self._codec.decode(joint), strict=True)
        ]

    def _cut(self, audio: Audio, frames: int) -> Audio:
        """What comes after the first `frames` codes."""
        start = round(frames * self._codec.sample_rate / self._codec.frame_rate)
        return Audio(audio.samples[start:], audio.sample_rate)


def _key(voice: Voice | None, codes: NDArray[np.int64]) -> bytes:
    """Equal for clips that sound alike: the same codes after those of the same voice."""
    own = codes.tobytes()
    return own if voice is None else len(voice.codes).to_bytes(8) + voice.codes.tobytes() + own
