"""The tiny codec: vector-quantised log-mel blocks, turned back into sound by phase recovery.

One code stands for four 10 ms frames of an 80-band log-mel spectrogram (25 codes/s at 16 kHz). The codebook
is k-means over one synthetic voice, so it is a codec for that voice and not for speech at large.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elocution.codecs.base import check_codes
from elocution.codecs.mel import (
    MelSettings,
    checked_blocks,
    clip_blocks,
    linear_magnitudes,
    read_blocks,
    recover_phase,
    write_blocks,
)
from elocution.types import Audio

__all__ = ["TinyCodec"]


class TinyCodec:
    """Codec of the tiny checkpoints; a folder with `codec.json` (settings) and `codec.safetensors` (`centroids`).

    Shapes: `centroids` [K, frames_per_code * num_bands], natural-log mel magnitudes.
    """

    num_codebooks = 1

    def __init__(self, centroids: Tensor, settings: MelSettings) -> None:
        self.settings = settings
        self.centroids = checked_blocks("centroids", centroids, settings, axes=("K",))
        self._magnitudes = linear_magnitudes(self.centroids, settings)

    @property
    def sample_rate(self) -> int:
        return self.settings.sample_rate

    @property
    def frame_rate(self) -> float:
        return self.settings.frame_rate

    @property
    def codebook_size(self) -> int:
        return len(self.centroids)

    @classmethod
    def from_pretrained(cls, path: Path) -> "TinyCodec":
        """Loads a codec folder.

        Raises: CodecError if a file is missing, truncated or does not fit the settings.
        """
        return cls(*read_blocks(path, "centroids"))

    def save_pretrained(self, path: Path) -> None:
        write_blocks(path, "centroids", self.centroids, self.settings)

    def encode(self, audio: Audio) -> NDArray[np.int64]:
        return torch.cdist(clip_blocks(audio, self.settings), self.centroids).argmin(dim=1).numpy()[:, None]

    def decode(self, codes: Sequence[NDArray[np.int64]]) -> list[Audio]:
        check_codes(codes, num_codebooks=1, codebook_size=self.codebook_size)
        waves = [recover_phase(self._magnitudes[clip[:, 0]].flatten(0, 1), self.settings) for clip in codes]
        return [Audio(wave.numpy(), self.sample_rate) for wave in waves]
