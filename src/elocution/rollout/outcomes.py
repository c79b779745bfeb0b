"""What a completion turned out to be, before anything listens to it."""

import numpy as np
from numpy.typing import NDArray

from elocution.measures.loudness import is_silent
from elocution.types import Audio, FinishReason, Outcome

__all__ = ["classify_outcome"]


def classify_outcome(codes: NDArray[np.int64], audio: Audio | None, finish_reason: FinishReason) -> Outcome:
    """EMPTY without codes, RUNAWAY if the token budget ran out, SILENT if nothing can be heard, else SPEECH.

    Shapes: `codes` [F, Q].
    """
    if len(codes) == 0 or audio is None:
        return Outcome.EMPTY
    if finish_reason is FinishReason.LENGTH:
        return Outcome.RUNAWAY
    return Outcome.SILENT if is_silent(audio) else Outcome.SPEECH
