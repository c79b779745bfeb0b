"""Completions -> sound and WAV files, by the codec of the served model."""

import threading
from collections.abc import Sequence

import numpy as np

from elocution.audio import encode_wav
from elocution.codecs.base import Codec
from elocution.policies.base import Policy
from elocution.rollout.outcomes import classify_outcome
from elocution.types import Audio, Completion, Outcome

__all__ = ["Voice"]


class Voice:
    """Safe to use in many threads; the codec is used by one at a time."""

    def __init__(self, policy: Policy, codec: Codec) -> None:
        """`policy` says which ids are which codes; weights that are loaded later do not change that."""
        self._policy, self._codec = policy, codec
        self._lock = threading.Lock()

    def sounds(self, completions: Sequence[Completion]) -> list[Audio | None]:
        """What each completion sounds like; None where it is no speech: empty, silent, or without an end."""
        codes = [self._policy.codes(completion.ids) for completion in completions]
        spoken = [clip for clip in codes if len(clip)]
        with self._lock:
            decoded = iter(self._codec.decode(spoken) if spoken else [])
        found: list[Audio | None] = []
        for completion, clip in zip(completions, codes, strict=True):
            sound = next(decoded) if len(clip) else None
            is_speech = classify_outcome(clip, sound, completion.finish_reason) is Outcome.SPEECH
            found.append(sound if is_speech else None)
        return found

    def wav(self, sound: Audio | None) -> bytes:
        """A WAV file of 16 bits; of one sample where there is no sound, which is how SGLang's fork says so."""
        return encode_wav(sound or Audio(np.zeros(1, np.float32), self._codec.sample_rate))
