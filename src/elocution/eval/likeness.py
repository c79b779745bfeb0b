"""How like the wanted voices held-out speech is, as a guard of a run: heard by an encoder that the reward does not use."""

from collections.abc import Sequence
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from elocution.audio import read_audio
from elocution.measures.base import SpeakerEncoder
from elocution.measures.speakers import cosine_similarity
from elocution.types import Outcome, Rollout, Voice

__all__ = ["VoiceLikeness"]


class VoiceLikeness:
    """Mean cosine of completions with the recordings in whose voices they were asked for; higher is more alike."""

    def __init__(self, encoder: SpeakerEncoder) -> None:
        self._encoder = encoder
        self._wanted: dict[str, NDArray[np.float32]] = {}

    def __call__(self, rollouts: Sequence[Rollout]) -> float | None:
        """None where no completion has speech that holds a voice, and a recording to compare it with.

        Raises: ValueError if a recording holds no voice; DataError if it cannot be read.
        """
        values = [value for rollout in rollouts if (value := self._likeness(rollout)) is not None]
        return fmean(values) if values else None

    def _likeness(self, rollout: Rollout) -> float | None:
        voice = rollout.utterance.voice
        if rollout.audio is None or rollout.outcome is not Outcome.SPEECH or voice is None or voice.audio is None:
            return None
        wanted = self._embedding(voice)
        try:
            return float(cosine_similarity(self._encoder.embed([rollout.audio]), wanted)[0])
        except ValueError:  # too short or too quiet to hold a voice, which other monitors say
            return None

    def _embedding(self, voice: Voice) -> NDArray[np.float32]:
        if voice.id not in self._wanted:
            assert voice.audio is not None
            self._wanted[voice.id] = self._encoder.embed([read_audio(voice.audio)])
        return self._wanted[voice.id]
