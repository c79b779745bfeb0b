"""Sound as blocks of a log-mel spectrogram and back, and codecs' files that hold such blocks: what the tiny codecs share."""

import functools
import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from scipy.signal import resample_poly
from torch import Tensor
from transformers.audio_utils import mel_filter_bank

from elocution.errors import CodecError
from elocution.files import apply_umask
from elocution.types import Audio

__all__ = [
    "MelSettings",
    "checked_blocks",
    "clip_blocks",
    "linear_magnitudes",
    "log_mel_blocks",
    "read_blocks",
    "recover_phase",
    "write_blocks",
]

_SETTINGS, _TENSORS = "codec.json", "codec.safetensors"


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

    @property
    def frame_rate(self) -> float:
        """Codes per second in each codebook."""
        return self.sample_rate / self.code_samples


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


def clip_blocks(audio: Audio, settings: MelSettings) -> Tensor:
    """`log_mel_blocks` of a clip of any rate.

    Raises: CodecError if it has no samples, or some that are not finite.
    """
    samples = audio.samples
    if len(samples) == 0:
        raise CodecError("cannot encode a clip without samples")
    if not np.isfinite(samples).all():
        raise CodecError("cannot encode a clip with samples that are not finite")
    if audio.sample_rate != settings.sample_rate:
        samples = resample_poly(samples, settings.sample_rate, audio.sample_rate)
    return log_mel_blocks(torch.from_numpy(np.ascontiguousarray(samples, dtype=np.float32)), settings)


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


def checked_blocks(name: str, blocks: Tensor, settings: MelSettings, *, axes: tuple[str, ...]) -> Tensor:
    """`blocks` in fp32; `axes` are the letters of the dimensions before the last.

    Raises: CodecError if they have another shape, or are no finite numbers.
    """
    width = settings.frames_per_code * settings.num_bands
    if blocks.ndim != len(axes) + 1 or blocks.shape[-1] != width:
        raise CodecError(f"{name} have shape {tuple(blocks.shape)}, expected [{', '.join(axes)}, {width}]")
    if blocks.numel() == 0 or not blocks.is_floating_point() or not blocks.isfinite().all():
        raise CodecError(f"{name} must be finite floating-point numbers, one row for each code")
    return blocks.float()


def read_blocks(folder: Path, name: str) -> tuple[Tensor, MelSettings]:
    """The tensor `name` of a codec folder, and the settings.

    Raises: CodecError if a file is missing, truncated or does not fit the settings.
    """
    try:
        settings = MelSettings(**json.loads((folder / _SETTINGS).read_text()))
        blocks = load_file(folder / _TENSORS)[name]
    except (OSError, ValueError, KeyError, TypeError, RecursionError, SafetensorError) as error:
        raise CodecError(f"cannot load a codec of {name} from {folder}: {error}") from error
    return blocks, settings


def write_blocks(folder: Path, name: str, blocks: Tensor, settings: MelSettings) -> None:
    """Writes, in fp16, what `read_blocks` reads."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _SETTINGS).write_text(json.dumps(asdict(settings), indent=2) + "\n")
    save_file({name: blocks.half()}, folder / _TENSORS)
    apply_umask(folder / _TENSORS)
