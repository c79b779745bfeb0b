"""The tiny codec: vector-quantised log-mel blocks, turned back into sound by phase recovery.

One code stands for four 10 ms frames of an 80-band log-mel spectrogram (25 codes/s at 16 kHz). The codebook
is k-means over one synthetic voice, so it is a codec for that voice and not for speech at large.
"""

import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from scipy.signal import resample_poly
from torch import Tensor
from transformers.audio_utils import mel_filter_bank

from elocution.errors import CodecError
from elocution.types import Audio

__all__ = ["MelSettings", "TinyCodec", "log_mel_blocks"]


@dataclass(frozen=True)
class MelSettings:
    """Spectrogram geometry. Units: samples, Hz, bands, frames per code, phase-recovery iterations."""

    sample_rate: int = 16_000
    hop: int = 160
    window: int = 640
    num_bands: int = 80
    frames_per_code: int = 4
    iterations: int = 16
    momentum: float = 0.99

    @property
    def code_samples(self) -> int:
        return self.hop * self.frames_per_code


@functools.lru_cache(maxsize=4)
def _filters(settings: MelSettings) -> tuple[Tensor, Tensor, Tensor]:
    bank = mel_filter_bank(
        num_frequency_bins=settings.window // 2 + 1,
        num_mel_filters=settings.num_bands,
        min_frequency=0.0,
        max_frequency=settings.sample_rate / 2,
        sampling_rate=settings.sample_rate,
        norm="slaney",
        mel_scale="slaney",
    )
    filters = torch.from_numpy(bank).float()  # [bins, bands]
    return filters, torch.linalg.pinv(filters.double()).float(), torch.hann_window(settings.window)


def log_mel_blocks(samples: Tensor, settings: MelSettings) -> Tensor:
    """Natural-log mel magnitudes in blocks of one code each; the clip is zero-padded to whole codes.

    Shapes: `samples` [S] -> [F, frames_per_code * num_bands], F = ceil(S / code_samples).
    """
    filters, _, window = _filters(settings)
    padding = -len(samples) % settings.code_samples
    padded = torch.nn.functional.pad(samples, (0, padding))
    spectrum = torch.stft(
        padded, settings.window, settings.hop, window=window, center=True, pad_mode="constant", return_complex=True
    )
    mel = torch.log((spectrum.abs().T[: len(padded) // settings.hop] @ filters).clamp_min(1e-5))
    return mel.reshape(-1, settings.frames_per_code * settings.num_bands)
