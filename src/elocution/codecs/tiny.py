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

from elocution.codecs.base import check_codes
from elocution.errors import CodecError
from elocution.files import apply_umask
from elocution.types import Audio

__all__ = ["MelSettings", "TinyCodec", "linear_magnitudes", "log_mel_blocks", "recover_phase"]


@dataclass(frozen=True)
class MelSettings:
    """Spectrogram geometry. Units: samples, Hz, bands, frames per code, phase-recovery iterations."""

    sample_rate: int = 16_000
    hop: int = 160
    window: int = 640
    num_bands: int = 80
    frames_per_code: int = 4
    iterations: int = 8
    momentum: float = 0.99

    def __post_init__(self) -> None:
        whole = ("sample_rate", "hop", "window", "num_bands", "frames_per_code")
        wrong = [name for name in whole if type(getattr(self, name)) is not int or getattr(self, name) < 1]
        if type(self.iterations) is not int or self.iterations < 0:
            wrong.append("iterations")
        if not isinstance(self.momentum, int | float) or not 0 <= self.momentum < 1:
            wrong.append("momentum")
        if wrong:
            raise ValueError(", ".join(f"{name} = {getattr(self, name)!r} is out of range" for name in wrong))
        if self.window % 2 or self.hop > self.window // 2:
            raise ValueError(f"window = {self.window} must be even and hold two hops of {self.hop}")

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


class TinyCodec:
    """Codec of the tiny checkpoints; a folder with `codec.json` (settings) and `codec.safetensors` (`centroids`).

    Shapes: `centroids` [K, frames_per_code * num_bands], natural-log mel magnitudes.
    """

    num_codebooks = 1

    def __init__(self, centroids: Tensor, settings: MelSettings) -> None:
        expected = settings.frames_per_code * settings.num_bands
        if centroids.ndim != 2 or centroids.shape[1] != expected:
            raise CodecError(f"centroids have shape {tuple(centroids.shape)}, expected [K, {expected}]")
        if len(centroids) == 0 or not centroids.is_floating_point() or not centroids.isfinite().all():
            raise CodecError("centroids must be finite floating-point numbers, one row for each code")
        self.settings = settings
        self.centroids = centroids.float()
        self._magnitudes = linear_magnitudes(self.centroids, settings)

    @property
    def sample_rate(self) -> int:
        return self.settings.sample_rate

    @property
    def frame_rate(self) -> float:
        return self.settings.sample_rate / self.settings.code_samples

    @property
    def codebook_size(self) -> int:
        return len(self.centroids)

    @classmethod
    def from_pretrained(cls, path: Path) -> "TinyCodec":
        """Loads a codec folder.

        Raises: CodecError if a file is missing, truncated or does not fit the settings.
        """
        try:
            settings = MelSettings(**json.loads((path / "codec.json").read_text()))
            centroids = load_file(path / "codec.safetensors")["centroids"]
        except (OSError, ValueError, KeyError, TypeError, RecursionError, SafetensorError) as error:
            raise CodecError(f"cannot load a tiny codec from {path}: {error}") from error
        return cls(centroids, settings)

    def save_pretrained(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)
        (path / "codec.json").write_text(json.dumps(self.settings.__dict__, indent=2) + "\n")
        save_file({"centroids": self.centroids.half()}, path / "codec.safetensors")
        apply_umask(path / "codec.safetensors")

    def encode(self, audio: Audio) -> NDArray[np.int64]:
        samples = audio.samples
        if audio.sample_rate != self.sample_rate:
            samples = resample_poly(samples, self.sample_rate, audio.sample_rate)
        if len(samples) == 0:
            raise CodecError("cannot encode a clip without samples")
        blocks = log_mel_blocks(torch.from_numpy(np.ascontiguousarray(samples, dtype=np.float32)), self.settings)
        return torch.cdist(blocks, self.centroids).argmin(dim=1).numpy()[:, None]

    def decode(self, codes: Sequence[NDArray[np.int64]]) -> list[Audio]:
        check_codes(codes, num_codebooks=1, codebook_size=self.codebook_size)
        waves = [recover_phase(self._magnitudes[clip[:, 0]].flatten(0, 1), self.settings) for clip in codes]
        return [Audio(wave.numpy(), self.sample_rate) for wave in waves]


def linear_magnitudes(blocks: Tensor, settings: MelSettings) -> Tensor:
    """Linear-frequency magnitudes of log-mel blocks. Shapes: [K, frames * bands] -> [K, frames, bins]."""
    _, inverse, _ = _filters(settings)
    mel = blocks.exp().unflatten(1, (settings.frames_per_code, settings.num_bands))
    magnitudes: Tensor = (mel @ inverse).clamp_min(0.0)
    return magnitudes


def recover_phase(magnitudes: Tensor, settings: MelSettings) -> Tensor:
    """Waveform whose spectrogram is close to `magnitudes`. Shapes: [frames, bins] -> [frames * hop].

    Starts from zero phase advanced at each bin's centre frequency, so the result is the same in every call.
    Source: fast Griffin-Lim, Perraudin et al. 2013, algorithm 1.
    """
    _, _, window = _filters(settings)
    frames, bins = magnitudes.shape
    length = frames * settings.hop
    target = torch.nn.functional.pad(magnitudes.T, (0, 1))  # the centred transform has one frame more
    advance = 2 * torch.pi * settings.hop / settings.window
    phase = advance * torch.arange(bins)[:, None] * torch.arange(frames + 1)[None, :]
    transform = (settings.window, settings.hop)
    angles = torch.polar(torch.ones_like(phase), phase)
    previous = torch.zeros_like(angles)
    for _ in range(settings.iterations):
        wave = torch.istft(target * angles, *transform, window=window, length=length)
        rebuilt = torch.stft(wave, *transform, window=window, pad_mode="constant", return_complex=True)
        angles = rebuilt + settings.momentum * (rebuilt - previous)
        angles = angles / angles.abs().clamp_min(1e-9)
        previous = rebuilt
    return torch.istft(target * angles, *transform, window=window, length=length)
