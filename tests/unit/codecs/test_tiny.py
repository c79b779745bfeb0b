import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from torch import Tensor

from elocution.assets import resolve_path
from elocution.codecs.tiny import TinyCodec
from elocution.errors import CodecError
from elocution.types import Audio


@pytest.fixture(scope="module")
def codec() -> TinyCodec:
    return TinyCodec.from_pretrained(resolve_path("builtin:tiny-codec"))


def tone(seconds: float, rate: int = 16_000) -> Audio:
    time = np.arange(round(seconds * rate)) / rate
    return Audio((0.3 * np.sin(2 * np.pi * 220 * time)).astype(np.float32), rate)


def test_rates_of_the_shipped_codec(codec: TinyCodec) -> None:
    assert (codec.sample_rate, codec.frame_rate, codec.num_codebooks, codec.codebook_size) == (16_000, 25.0, 1, 2048)


def test_a_clip_becomes_one_code_for_each_40_ms_begun(codec: TinyCodec) -> None:
    assert codec.encode(tone(0.40)).shape == (10, 1)
    assert codec.encode(tone(0.41)).shape == (11, 1)


def test_s80_other_sample_rates_give_the_same_codes(codec: TinyCodec) -> None:
    at_16k, at_48k = codec.encode(tone(0.8)), codec.encode(tone(0.8, 48_000))
    assert at_16k.shape == at_48k.shape
    inner = slice(2, -2)  # the resampler's filter rings at the edges
    assert (at_16k[inner] == at_48k[inner]).mean() > 0.7


def test_s10_equal_codes_give_equal_audio_in_any_batch(codec: TinyCodec) -> None:
    first, second = np.arange(30)[:, None], np.arange(100, 117)[:, None]
    alone = codec.decode([first])[0].samples
    together = codec.decode([second, first, first])
    assert np.array_equal(alone, together[1].samples)
    assert np.array_equal(alone, together[2].samples)
    assert len(alone) == 30 * 640


@pytest.mark.parametrize("codes", [np.zeros((0, 1), int), np.zeros((3, 2), int), np.array([[2048]]), np.array([[-1]])])
def test_s33_codes_that_do_not_exist_are_refused(codec: TinyCodec, codes: np.ndarray) -> None:
    with pytest.raises(CodecError, match="codes of clip 1"):
        codec.decode([np.zeros((2, 1), int), codes])


@pytest.mark.parametrize("samples", [np.zeros(0, np.float32), np.full(1600, np.nan, np.float32)])
def test_s81_clips_without_usable_samples_are_refused(codec: TinyCodec, samples: np.ndarray) -> None:
    with pytest.raises(CodecError, match="cannot encode"):
        codec.encode(Audio(samples, 16_000))


def test_saving_and_loading_keep_the_sound(codec: TinyCodec, tmp_path: Path) -> None:
    codec.save_pretrained(tmp_path / "codec")
    again = TinyCodec.from_pretrained(tmp_path / "codec")
    codes = np.arange(20)[:, None]
    assert np.array_equal(codec.decode([codes])[0].samples, again.decode([codes])[0].samples)


def test_a_truncated_codec_is_named(codec: TinyCodec, tmp_path: Path) -> None:
    codec.save_pretrained(tmp_path)
    weights = tmp_path / "codec.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(CodecError, match=str(tmp_path)):
        TinyCodec.from_pretrained(tmp_path)
    with pytest.raises(CodecError, match="absent"):
        TinyCodec.from_pretrained(tmp_path / "absent")


@pytest.mark.parametrize(
    "settings",
    [
        *({"hop": value} for value in (0, "a", 4.0, None)),
        *({"window": value} for value in (641, 100)),
        *({"momentum": value} for value in (None, 1.0, float("nan"))),
        {"sample_rate": -1},
        {"iterations": -1},
        {"unknown": 1},
    ],
)
def test_settings_that_cannot_be_are_named_when_loaded(
    codec: TinyCodec, tmp_path: Path, settings: dict[str, object]
) -> None:
    codec.save_pretrained(tmp_path)
    (tmp_path / "codec.json").write_text(json.dumps(codec.settings.__dict__ | settings))
    with pytest.raises(CodecError, match=f"cannot load a codec of centroids from {tmp_path}: .*{next(iter(settings))}"):
        TinyCodec.from_pretrained(tmp_path)


@pytest.mark.parametrize("change", [lambda c: c * float("nan"), lambda c: c[:0], lambda c: c.int()])
def test_centroids_that_cannot_be_are_refused(codec: TinyCodec, change: Callable[[Tensor], Tensor]) -> None:
    with pytest.raises(CodecError, match="must be finite floating-point numbers"):
        TinyCodec(change(codec.centroids), codec.settings)
