"""XCodec2 and NeuCodec through transformers' own models: 50 codes/s in one codebook of 65 536.

A run decodes only, so the encoder, most of the weights, is read from disk when the first clip is to be encoded.
"""

import json
from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from transformers import (
    NeuCodecConfig,
    NeuCodecModel,
    PreTrainedConfig,
    SeamlessM4TFeatureExtractor,
    Xcodec2Config,
    Xcodec2Model,
)
from transformers.models.neucodec.modeling_neucodec import NeuCodecDecoder, NeuCodecQuantizer
from transformers.models.xcodec2.modeling_xcodec2 import Xcodec2Decoder, Xcodec2Quantizer

from elocution.codecs.base import check_codes
from elocution.errors import CodecError
from elocution.loading import LOADING
from elocution.measures.resample import samples_at
from elocution.types import Audio

__all__ = ["NeuCodec", "Xcodec2"]

_MAX_ROWS = 32
_INPUT_RATE = 16_000


class _Decoder(nn.Module):
    """The half of the model that turns codes into sound, under the names that its tensors have in the checkpoint."""

    def __init__(self, quantizer: nn.Module, acoustic_decoder: nn.Module) -> None:
        super().__init__()
        self.quantizer: Any = quantizer
        self.acoustic_decoder = acoustic_decoder

    def forward(self, codes: Tensor) -> Tensor:
        """Shapes: [B, F] -> [B, S]."""
        waves: Tensor = self.acoustic_decoder(self.quantizer.from_codes(codes[..., None]))
        return waves[:, 0]


class Xcodec2:
    """A checkpoint folder of `Xcodec2Model` (`HKUSTAudio/xcodec2-hf`); 16 kHz in and out.

    Clips of equal length are decoded together; those of unequal length are not, since padding would be heard in the
    last frames. Source: transformers `models/xcodec2`; the encoder's features are those of the original code.
    """

    num_codebooks = 1
    model_class: ClassVar[Any] = Xcodec2Model
    config_class: ClassVar[type[PreTrainedConfig]] = Xcodec2Config
    _parts: ClassVar[tuple[Any, Any]] = (Xcodec2Quantizer, Xcodec2Decoder)
    # The semantic branch sees the clip with half a frame of silence on both sides.
    _semantic_padding = 160

    def __init__(self, path: Path, config: Any, decoder: _Decoder) -> None:
        self._path, self._config, self._decoder = path, config, decoder

    @classmethod
    def from_pretrained(cls, path: Path) -> Self:
        """Loads a checkpoint folder; nothing is downloaded.

        Raises: CodecError if a file is missing or truncated, or its tensors are not exactly those of the model: a codec
        with a layer left at random sounds a little worse and says nothing.
        """
        config = _read_config(path, cls.config_class)
        with LOADING, torch.device("meta"):
            expected = {name: tensor.shape for name, tensor in cls.model_class(config).state_dict().items()}
        shards = _shards(path)
        try:
            tensors = _tensors_of(shards, expected)
        except (OSError, SafetensorError) as error:
            raise CodecError(f"cannot read the tensors of the codec {path}: {error}") from error
        quantizer, acoustic_decoder = cls._parts
        with LOADING:
            decoder = _Decoder(quantizer(config), acoustic_decoder(config))
        decoder.load_state_dict(tensors)
        return cls(path, config, decoder.eval().requires_grad_(False))

    @property
    def sample_rate(self) -> int:
        return int(self._config.sampling_rate)

    @property
    def frame_rate(self) -> float:
        return _INPUT_RATE / self._input_hop

    @property
    def codebook_size(self) -> int:
        return prod(self._config.quantization_levels)

    @property
    def _input_hop(self) -> int:
        """Input samples for each code."""
        return prod(self._config.downsampling_ratios)

    @cached_property
    def _encoder(self) -> Any:
        # The keys were compared when the decoder was loaded.
        with LOADING:
            encoder = self.model_class.from_pretrained(self._path, local_files_only=True)
        return encoder.eval().requires_grad_(False)

    @cached_property
    def _features(self) -> SeamlessM4TFeatureExtractor:
        return SeamlessM4TFeatureExtractor(
            feature_size=80, num_mel_bins=80, sampling_rate=_INPUT_RATE, stride=2, padding_value=1.0
        )

    @torch.inference_mode()
    def encode(self, audio: Audio) -> NDArray[np.int64]:
        """Codes [F, 1]; F = samples at 16 kHz // 320, what the padding adds at the end is cut off."""
        samples = samples_at(audio, _INPUT_RATE)
        hop = self._input_hop
        frames = len(samples) // hop
        if frames == 0 or not np.isfinite(samples).all():
            raise CodecError(
                f"a clip of {audio.duration_s:.3f} s is too short to encode, or has samples that are no numbers"
            )
        padded = np.pad(samples, (0, hop - len(samples) % hop))
        semantic = np.pad(padded, self._semantic_padding)
        features = self._features(semantic, sampling_rate=_INPUT_RATE, return_tensors="pt").input_features
        found = self._encoder.encode(torch.from_numpy(padded)[None, None], features).audio_codes
        codes: NDArray[np.int64] = found[0, 0, :frames, None].long().cpu().numpy()
        return codes

    @torch.inference_mode()
    def decode(self, codes: Sequence[NDArray[np.int64]]) -> list[Audio]:
        check_codes(codes, num_codebooks=1, codebook_size=self.codebook_size)
        by_length: defaultdict[int, list[int]] = defaultdict(list)
        for index, clip in enumerate(codes):
            by_length[len(clip)].append(index)
        audio: dict[int, Audio] = {}
        for indices in by_length.values():
            for start in range(0, len(indices), _MAX_ROWS):
                chunk = indices[start : start + _MAX_ROWS]
                waves = self._decoder(torch.from_numpy(np.stack([codes[index][:, 0] for index in chunk])))
                for index, wave in zip(chunk, waves.float().cpu().numpy(), strict=True):
                    audio[index] = Audio(wave, self.sample_rate)
        return [audio[index] for index in range(len(codes))]


class NeuCodec(Xcodec2):
    """A checkpoint folder of `NeuCodecModel` (`neuphonic/neucodec`); 16 kHz in, 24 kHz out."""

    model_class = NeuCodecModel
    config_class = NeuCodecConfig
    _parts = (NeuCodecQuantizer, NeuCodecDecoder)
    _semantic_padding = 0

    @property
    def sample_rate(self) -> int:
        return int(self._config.output_sampling_rate)


def _read_config(path: Path, config_class: type[PreTrainedConfig]) -> Any:
    file = path / "config.json"
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        model_type = found.get("model_type")
    except (OSError, ValueError, AttributeError) as error:
        raise CodecError(f"cannot read the codec's {file}: {error}") from error
    if model_type != config_class.model_type:
        raise CodecError(f"{file} has model_type {model_type!r}, this codec is {config_class.model_type!r}")
    try:
        return config_class.from_dict(found)
    except Exception as error:  # the config class checks its values with errors of many kinds
        raise CodecError(f"{file} does not fit: {error}") from error


def _shards(path: Path) -> list[Path]:
    shards = sorted(path.glob("*.safetensors"))
    if not shards:
        raise CodecError(f"{path} has no .safetensors file")
    return shards


def _tensors_of(shards: Sequence[Path], expected: dict[str, torch.Size]) -> dict[str, Tensor]:
    """The decoder's tensors, after the names and shapes of all have been compared with the model's.

    Raises: CodecError if any is missing, left over or of another shape.
    """
    found: dict[str, torch.Size] = {}
    tensors = {}
    for shard in shards:
        with safe_open(shard, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118  (no mapping: it cannot be iterated)
                found[name] = torch.Size(file.get_slice(name).get_shape())
                if name.startswith(("quantizer.", "acoustic_decoder.")):
                    tensors[name] = file.get_tensor(name).float()
    wrong = {
        "missing": sorted(expected.keys() - found.keys()),
        "unexpected": sorted(found.keys() - expected.keys()),
        "of another shape": sorted(name for name in found.keys() & expected.keys() if found[name] != expected[name]),
    }
    if any(wrong.values()):
        listed = "; ".join(f"{len(names)} {kind}: {', '.join(names[:3])}" for kind, names in wrong.items() if names)
        raise CodecError(f"the tensors in {shards[0].parent} are not those of the codec: {listed}")
    return tensors
