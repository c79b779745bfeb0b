"""What a codec must do for the loop: codes <-> audio. Knows nothing of text, policies or rewards."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from elocution.errors import CodecError
from elocution.types import Audio

__all__ = ["Codec", "check_codes"]


class Codec(Protocol):
    """Turns audio into codes [F, Q] and back; deterministic, whatever the batch. Two threads may decode at once."""

    @property
    def sample_rate(self) -> int:
        """Rate of the audio that `decode` returns, Hz."""

    @property
    def frame_rate(self) -> float:
        """Codes per second in each codebook."""

    @property
    def num_codebooks(self) -> int:
        """Q."""

    @property
    def codebook_size(self) -> int:
        """Codes are 0 … codebook_size - 1."""

    def encode(self, audio: Audio) -> NDArray[np.int64]:
        """Codes [F, Q] of one clip, resampled if its rate is another."""

    def decode(self, codes: Sequence[NDArray[np.int64]]) -> list[Audio]:
        """One clip for each [F, Q] array, in order; F >= 1.

        Raises: CodecError if a code is out of range or an array is empty or of another shape.
        """


def check_codes(codes: Sequence[NDArray[np.int64]], *, num_codebooks: int, codebook_size: int) -> None:
    """Raises: CodecError unless each clip is [F >= 1, num_codebooks] with codes below `codebook_size`."""
    for index, clip in enumerate(codes):
        if clip.ndim != 2 or clip.shape[1] != num_codebooks or len(clip) == 0:
            raise CodecError(f"codes of clip {index} have shape {clip.shape}, expected [F >= 1, {num_codebooks}]")
        if clip.min() < 0 or clip.max() >= codebook_size:
            raise CodecError(
                f"codes of clip {index} span {clip.min()}…{clip.max()}, the codebook has 0…{codebook_size - 1}"
            )
