"""Completions -> sound and WAV files, by the codec of the served model."""

import threading
from collections.abc import Sequence

import numpy as np

from elocution.audio import encode_wav
from elocution.codecs.base import Codec
from elocution.policies.base import Policy
from elocution.rollout.speak import Speaker
from elocution.rollout.torch_engine import TorchEngine
from elocution.types import Audio, Completion, Outcome, Utterance

__all__ = ["Voice"]


class Voice:
    """Safe to use in many threads; the codec is used by one at a time."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._lock = threading.Lock()

    def sounds(self, policy: Policy, utterance: Utterance, completions: Sequence[Completion]) -> list[Audio | None]:
        """What each completion of `utterance` sounds like; None where it is no speech: empty, silent, or without an end."""
        # Nothing is drawn with this engine: a speaker has one, and makes audible what others drew.
        engine = TorchEngine(policy, temperature=1.0, batch_size=1)
        speaker = Speaker(policy, engine, self._codec, max_codes_per_char=1.0, min_codes=1)
        with self._lock:
            rollouts = speaker.voice([(utterance, completion) for completion in completions], {})
        return [rollout.audio if rollout.outcome is Outcome.SPEECH else None for rollout in rollouts]

    def wav(self, sound: Audio | None) -> bytes:
        """A WAV file of 16 bits; of one sample where there is no sound, which is how SGLang's fork says so."""
        return encode_wav(sound or Audio(np.zeros(1, np.float32), self._codec.sample_rate))
