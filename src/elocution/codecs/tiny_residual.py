"""The tiny residual codec: log-mel blocks as a sum of several codebooks' entries, coarse first, for multi-codebook models.

Codebook q holds what the codebooks before it left over. Sound is made as in the tiny codec. The codebooks are k-means
over a few synthetic voices: a codec for these and not for speech at large.
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

__all__ = ["TinyResidualCodec", "residual_codes"]


def residual_codes(blocks: Tensor, codebooks: Tensor) -> NDArray[np.int64]:
    """The nearest entry of each codebook to what those before it left. Shapes: [F, N], [Q, K, N] -> [F, Q]."""
    left, codes = blocks, []
    for entries in codebooks:
        code = torch.cdist(left, entries).argmin(dim=1)
        left = left - entries[code]
        codes.append(code)
    found: NDArray[np.int64] = torch.stack(codes, dim=1).numpy()
    return found


class TinyResidualCodec:
    """A folder with `codec.json` (settings) and `codec.safetensors` (`codebooks`).

    Shapes: `codebooks` [Q, K, frames_per_code * num_bands]; the sum of a frame's Q entries is its block of natural-log mel
    magnitudes.
    """

    def __init__(self, codebooks: Tensor, settings: MelSettings) -> None:
        self.settings = settings
        self.codebooks = checked_blocks("codebooks", codebooks, settings, axes=("Q", "K"))

    @property
    def sample_rate(self) -> int:
        return self.settings.sample_rate

    @property
    def frame_rate(self) -> float:
        return self.settings.frame_rate

    @property
    def num_codebooks(self) -> int:
        return self.codebooks.shape[0]

    @property
    def codebook_size(self) -> int:
        return self.codebooks.shape[1]

    @classmethod
    def from_pretrained(cls, path: Path) -> "TinyResidualCodec":
        """Loads a codec folder.

        Raises: CodecError if a file is missing, truncated or does not fit the settings.
        """
        return cls(*read_blocks(path, "codebooks"))

    def save_pretrained(self, path: Path) -> None:
        write_blocks(path, "codebooks", self.codebooks, self.settings)

    def encode(self, audio: Audio) -> NDArray[np.int64]:
        return residual_codes(clip_blocks(audio, self.settings), self.codebooks)

    def decode(self, codes: Sequence[NDArray[np.int64]]) -> list[Audio]:
        check_codes(codes, num_codebooks=self.num_codebooks, codebook_size=self.codebook_size)
        return [Audio(self._sound(torch.from_numpy(clip)).numpy(), self.sample_rate) for clip in codes]

    def _sound(self, codes: Tensor) -> Tensor:
        """Shapes: [F, Q] -> [S]."""
        blocks = torch.stack([entries[codes[:, book]] for book, entries in enumerate(self.codebooks)]).sum(dim=0)
        return recover_phase(linear_magnitudes(blocks, self.settings).flatten(0, 1), self.settings)
