"""XCodec2 and NeuCodec: checkpoints of random weights in the released layout, against transformers' own calls."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import NeuCodecConfig, NeuCodecModel, Xcodec2Config, Xcodec2Model

from elocution.codecs import load_codec
from elocution.codecs.xcodec2 import Xcodec2
from elocution.errors import CodecError
from elocution.types import Audio

SMALL = {
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "head_dim": 16,
    "encoder_hidden_size": 4,
    "quantization_dim": 80,
    "semantic_model_config": {
        "model_type": "wav2vec2-bert",
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "feature_projection_input_dim": 160,
        "conv_depthwise_kernel_size": 3,
    },
}
FAMILIES = {"xcodec2": (Xcodec2Config, Xcodec2Model, 16_000), "neucodec": (NeuCodecConfig, NeuCodecModel, 24_000)}


def save_random(name: str, path: Path) -> None:
    config_class, model_class, _ = FAMILIES[name]
    torch.manual_seed(0)
    model_class(config_class(**SMALL)).save_pretrained(path)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    paths = {name: tmp_path_factory.mktemp(name) for name in FAMILIES}
    for name, path in paths.items():
        save_random(name, path)
    return paths


def random_codes(*lengths: int) -> list[np.ndarray]:
    generator = np.random.default_rng(0)
    return [generator.integers(0, 65_536, (length, 1)) for length in lengths]


@pytest.mark.parametrize("name", FAMILIES)
def test_decoding_equals_transformers_own_call(name: str, folders: dict[str, Path]) -> None:
    codec = load_codec(name, folders[name])
    model = FAMILIES[name][1].from_pretrained(folders[name]).eval()
    (codes,) = random_codes(11)
    with torch.inference_mode():
        expected = model.decode(torch.from_numpy(codes.T)[None]).audio_values[0, 0]
    (audio,) = codec.decode([codes])
    np.testing.assert_allclose(audio.samples, expected.numpy(), atol=1e-6)
    assert audio.sample_rate == codec.sample_rate == FAMILIES[name][2]
    assert len(audio.samples) == 11 * codec.sample_rate / codec.frame_rate
    assert (codec.frame_rate, codec.num_codebooks, codec.codebook_size) == (50, 1, 65_536)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_clip_sounds_the_same_in_any_batch(name: str, folders: dict[str, Path]) -> None:
    codec = load_codec(name, folders[name])
    codes = random_codes(3, 9, 3, 1, 9, 9)
    for clip, audio in zip(codes, codec.decode(codes), strict=True):
        np.testing.assert_allclose(audio.samples, codec.decode([clip])[0].samples, atol=1e-6)


def test_the_encoder_is_read_when_it_is_needed_only(folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    reads = []
    original = Xcodec2Model.from_pretrained.__func__

    def counting(cls: type, *args: object, **kwargs: object) -> object:
        reads.append(args)
        return original(cls, *args, **kwargs)

    monkeypatch.setattr(Xcodec2Model, "from_pretrained", classmethod(counting))
    codec = load_codec("xcodec2", folders["xcodec2"])
    codec.decode(random_codes(4))
    assert not reads
    for _ in range(2):
        codec.encode(Audio(np.zeros(3200, dtype=np.float32), 16_000))
    assert len(reads) == 1


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("samples", [320, 3199, 3200, 3201])
def test_a_clip_has_one_code_for_each_whole_frame(name: str, samples: int, folders: dict[str, Path]) -> None:
    wave = np.random.default_rng(0).normal(0, 0.1, samples).astype(np.float32)
    codes = load_codec(name, folders[name]).encode(Audio(wave, 16_000))
    assert codes.shape == (samples // 320, 1)
    assert codes.dtype == np.int64


def test_s80_a_clip_at_another_rate_is_resampled(folders: dict[str, Path]) -> None:
    codec = load_codec("xcodec2", folders["xcodec2"])
    assert len(codec.encode(Audio(np.zeros(48_000, dtype=np.float32), 48_000))) == 50


@pytest.mark.parametrize("samples", [np.zeros(0), np.zeros(319), np.full(3200, np.nan)])
def test_s81_a_clip_that_cannot_be_encoded_is_refused(samples: np.ndarray, folders: dict[str, Path]) -> None:
    with pytest.raises(CodecError, match=r"clip of 0\.\d+ s"):
        load_codec("xcodec2", folders["xcodec2"]).encode(Audio(samples.astype(np.float32), 16_000))


def test_s33_codes_out_of_range_never_reach_the_decoder(folders: dict[str, Path]) -> None:
    codec = load_codec("xcodec2", folders["xcodec2"])
    with pytest.raises(CodecError, match="65536"):
        codec.decode([np.array([[65_536]])])
    with pytest.raises(CodecError, match="shape"):
        codec.decode([np.zeros((0, 1), dtype=np.int64)])


@pytest.mark.parametrize("change", ["missing", "unexpected", "of another shape"])
def test_tensors_that_are_not_the_models_are_refused(change: str, tmp_path: Path) -> None:
    save_random("xcodec2", tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    name = next(name for name in tensors if "snake" in name or "act" in name.split(".")[-2])
    if change == "missing":
        del tensors[name]
    elif change == "unexpected":
        tensors["acoustic_decoder.new.weight"] = torch.zeros(3)
    else:
        tensors[name] = torch.zeros(len(tensors[name]) + 1)
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(CodecError, match=f"1 {change}"):
        load_codec("xcodec2", tmp_path)


def test_a_truncated_file_and_a_folder_without_one_are_refused(tmp_path: Path) -> None:
    save_random("xcodec2", tmp_path)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(CodecError, match="cannot read the tensors"):
        load_codec("xcodec2", tmp_path)
    weights.unlink()
    with pytest.raises(CodecError, match=r"no \.safetensors"):
        load_codec("xcodec2", tmp_path)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{}", "model_type None"),
        ("[1]", "cannot read"),
        ("{", "cannot read"),
        ('{"model_type": "neucodec"}', "neucodec"),
    ],
)
def test_another_models_config_is_refused(content: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(CodecError, match=said):
        load_codec("xcodec2", tmp_path)


def test_a_config_with_a_value_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    save_random("xcodec2", tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"hidden_size": "wide"}))
    with pytest.raises(CodecError, match=r"config\.json does not fit"):
        Xcodec2.from_pretrained(tmp_path)
