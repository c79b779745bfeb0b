"""SNAC with three codebooks at rates of 1, 2 and 4 to a frame, seen as seven codes a frame, in the order that Orpheus writes
them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from elocution.codecs.base import check_codes
from elocution.errors import CodecError, MissingDependency
from elocution.measures.resample import samples_at
from elocution.types import Audio

__all__ = ["Snac"]

# The level that each of a frame's seven codes belongs to; within a level, in the order of time.
_LEVELS = np.array([0, 1, 2, 2, 1, 2, 2])
_STRIDES = [4, 2, 1]


class Snac:
    """A checkpoint folder of `hubertsiuzdak/snac_24khz` with the package `snac`; decoding takes its noise from a fixed seed.

    Source: SNAC, arXiv:2410.14411; the order of codes is that of Orpheus' decoders.
    """

    num_codebooks = len(_LEVELS)

    def __init__(self, model: Any) -> None:
        if list(model.vq_strides) != _STRIDES:
            raise CodecError(f"the codec has codebooks of strides {list(model.vq_strides)}, expected {_STRIDES}")
        self._model = model.eval().requires_grad_(False)
        self.sample_rate = int(model.sampling_rate)
        self.codebook_size = int(model.codebook_size)
        self._frame_samples = int(model.hop_length) * _STRIDES[0]

    @classmethod
    def from_pretrained(cls, path: Path) -> "Snac":
        """Loads a checkpoint folder; nothing is downloaded.

        Raises: CodecError if a file is missing or damaged, or its tensors are not exactly those of the model.
        """
        try:
            from snac import SNAC
        except ImportError as error:
            raise MissingDependency.naming("snac", "snac") from error
        try:
            model = SNAC(**json.loads((path / "config.json").read_text(encoding="utf-8")))
            model.load_state_dict(torch.load(path / "pytorch_model.bin", map_location="cpu", weights_only=True))
        except Exception as error:  # a damaged file may end in any error of the libraries that read it
            raise CodecError(f"cannot load the codec {path}: {type(error).__name__}: {error}") from error
        return cls(model)

    @property
    def frame_rate(self) -> float:
        return self.sample_rate / self._frame_samples

    @torch.inference_mode()
    def encode(self, audio: Audio) -> NDArray[np.int64]:
        """Codes [F, 7]; what does not fill a last frame is cut off."""
        samples = samples_at(audio, self.sample_rate)
        frames = len(samples) // self._frame_samples
        if frames == 0 or not np.isfinite(samples).all():
            raise CodecError(
                f"a clip of {audio.duration_s:.3f} s is too short to encode, or has samples that are no numbers"
            )
        whole = torch.from_numpy(samples[: frames * self._frame_samples].astype(np.float32))
        levels = self._model.encode(whole[None, None])
        codes = np.zeros((frames, len(_LEVELS)), np.int64)
        for level, found in enumerate(levels):
            own = np.flatnonzero(level == _LEVELS)
            codes[:, own] = found[0, : frames * len(own)].reshape(frames, -1).numpy()
        return codes

    @torch.inference_mode()
    def decode(self, codes: Sequence[NDArray[np.int64]]) -> list[Audio]:
        check_codes(codes, num_codebooks=self.num_codebooks, codebook_size=self.codebook_size)
        return [self._decode(clip) for clip in codes]

    def _decode(self, clip: NDArray[np.int64]) -> Audio:
        levels = [torch.from_numpy(clip[:, level == _LEVELS].reshape(1, -1)) for level in range(len(_STRIDES))]
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(0)
            wave = self._model.decode(levels)
        return Audio(wave[0, 0].float().numpy(), self.sample_rate)
