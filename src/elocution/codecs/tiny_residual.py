"""The tiny residual codec: log-mel blocks as a sum of several codebooks' entries, coarse first, for multi-codebook models.

Codebook q holds what the codebooks before it left over. Sound is made as in the tiny codec. The codebooks are k-means
over a few synthetic voices: a codec for these and not for speech at large.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from scipy.signal import resample_poly
from torch import Tensor

from elocution.codecs.base import check_codes
from elocution.codecs.tiny import MelSettings, linear_magnitudes, log_mel_blocks, recover_phase
from elocution.errors import CodecError
from elocution.files import apply_umask
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
        expected = settings.frames_per_code * settings.num_bands
        if codebooks.ndim != 3 or codebooks.shape[2] != expected:
            raise CodecError(f"codebooks have shape {tuple(codebooks.shape)}, expected [Q, K, {expected}]")
        if codebooks.numel() == 0 or not codebooks.is_floating_point() or not codebooks.isfinite().all():
            raise CodecError("codebooks must be finite floating-point numbers, one row for each code")
        self.settings = settings
        self.codebooks = codebooks.float()

    @property
    def sample_rate(self) -> int:
        return self.settings.sample_rate

    @property
    def frame_rate(self) -> float:
        return self.settings.sample_rate / self.settings.code_samples

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
        try:
            settings = MelSettings(**json.loads((path / "codec.json").read_text()))
            codebooks = load_file(path / "codec.safetensors")["codebooks"]
        except (OSError, ValueError, KeyError, TypeError, RecursionError, SafetensorError) as error:
            raise CodecError(f"cannot load a tiny residual codec from {path}: {error}") from error
        return cls(codebooks, settings)

    def save_pretrained(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)
        (path / "codec.json").write_text(json.dumps(self.settings.__dict__, indent=2) + "\n")
        save_file({"codebooks": self.codebooks.half()}, path / "codec.safetensors")
        apply_umask(path / "codec.safetensors")

    def encode(self, audio: Audio) -> NDArray[np.int64]:
        samples = audio.samples
        if len(samples) == 0:
            raise CodecError("cannot encode a clip without samples")
        if not np.isfinite(samples).all():
            raise CodecError("cannot encode a clip with samples that are not finite")
        if audio.sample_rate != self.sample_rate:
            samples = resample_poly(samples, self.sample_rate, audio.sample_rate)
        blocks = log_mel_blocks(torch.from_numpy(np.ascontiguousarray(samples, dtype=np.float32)), self.settings)
        return residual_codes(blocks, self.codebooks)

    def decode(self, codes: Sequence[NDArray[np.int64]]) -> list[Audio]:
        check_codes(codes, num_codebooks=self.num_codebooks, codebook_size=self.codebook_size)
        return [Audio(self._sound(torch.from_numpy(clip)).numpy(), self.sample_rate) for clip in codes]

    def _sound(self, codes: Tensor) -> Tensor:
        """Shapes: [F, Q] -> [S]."""
        blocks = torch.stack([entries[codes[:, book]] for book, entries in enumerate(self.codebooks)]).sum(dim=0)
        return recover_phase(linear_magnitudes(blocks, self.settings).flatten(0, 1), self.settings)
