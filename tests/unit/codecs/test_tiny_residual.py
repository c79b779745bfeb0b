from pathlib import Path

import numpy as np
import pytest
import torch

from elocution.codecs import load_codec
from elocution.codecs.mel import MelSettings, log_mel_blocks
from elocution.codecs.tiny_residual import TinyResidualCodec, residual_codes
from elocution.errors import CodecError
from elocution.types import Audio

SETTINGS = MelSettings(frames_per_code=8)


def tone(seconds: float, rate: int = 16_000, pitch: float = 220.0) -> Audio:
    time = np.arange(round(seconds * rate)) / rate
    return Audio((0.3 * np.sin(2 * np.pi * pitch * time)).astype(np.float32), rate)


@pytest.fixture(scope="module")
def codec() -> TinyResidualCodec:
    """Four codebooks of 16 entries: blocks of tones, then ever smaller noise."""
    generator = torch.Generator().manual_seed(0)
    tones = torch.cat(
        [log_mel_blocks(torch.from_numpy(tone(0.3, pitch=p).samples), SETTINGS) for p in (150, 300, 600, 900)]
    )
    books = [tones[:16], *(scale * torch.randn(16, 640, generator=generator) for scale in (1.0, 0.5, 0.25))]
    return TinyResidualCodec(torch.stack(books).half(), SETTINGS)


def test_each_codebook_takes_what_the_ones_before_it_left() -> None:
    books = torch.tensor([[[0.0, 0.0], [10.0, 10.0]], [[-1.0, 1.0], [2.0, 0.0]], [[0.0, 0.25], [0.5, 0.0]]])
    blocks = torch.tensor([[9.0, 11.25], [2.0, 0.0]])
    # 10,10 leaves -1,1.25; -1,1 leaves 0,0.25.   0,0 leaves 2,0; 2,0 leaves 0,0; both last entries miss, 0,0.25 by less.
    assert residual_codes(blocks, books).tolist() == [[1, 0, 0], [0, 1, 0]]


def test_more_codebooks_come_closer(codec: TinyResidualCodec) -> None:
    blocks = log_mel_blocks(torch.from_numpy(tone(0.8, pitch=200).samples), SETTINGS)
    codes = torch.from_numpy(residual_codes(blocks, codec.codebooks))
    left, errors = blocks, []
    for book in range(4):
        left = left - codec.codebooks[book][codes[:, book]]
        errors.append(left.square().mean().item())
    assert errors[0] < blocks.square().mean().item()


def test_rates_follow_from_the_settings(codec: TinyResidualCodec) -> None:
    assert (codec.sample_rate, codec.frame_rate, codec.num_codebooks, codec.codebook_size) == (16_000, 12.5, 4, 16)
    assert codec.encode(tone(0.80)).shape == (10, 4)
    assert codec.encode(tone(0.81)).shape == (11, 4)
    assert codec.decode([np.zeros((10, 4), int)])[0].duration_s == pytest.approx(0.8)


def test_s80_other_sample_rates_give_the_same_coarse_codes(codec: TinyResidualCodec) -> None:
    at_16k, at_48k = codec.encode(tone(1.6)), codec.encode(tone(1.6, 48_000))
    inner = slice(2, -2)  # the resampler's filter rings at the edges
    assert (at_16k[inner, 0] == at_48k[inner, 0]).mean() > 0.7


def test_s10_equal_codes_give_equal_audio_in_any_batch(codec: TinyResidualCodec) -> None:
    one, other = np.arange(40).reshape(10, 4) % 16, np.zeros((3, 4), int)
    alone = codec.decode([one])[0].samples
    assert np.array_equal(codec.decode([other, one])[1].samples, alone)


def test_every_codebook_is_heard(codec: TinyResidualCodec) -> None:
    codes = np.full((10, 4), 3)
    plain = codec.decode([codes])[0].samples
    for book in range(4):
        changed = codes.copy()
        changed[:, book] = 7
        assert np.abs(codec.decode([changed])[0].samples - plain).max() > 1e-4


@pytest.mark.parametrize(
    "codes", [np.zeros((0, 4), int), np.zeros((3, 1), int), np.full((1, 4), 16), np.full((1, 4), -1)]
)
def test_s33_codes_that_do_not_exist_are_refused(codec: TinyResidualCodec, codes: np.ndarray) -> None:
    with pytest.raises(CodecError, match="codes of clip 1"):
        codec.decode([np.zeros((2, 4), int), codes])


def test_saving_and_loading_keep_the_sound(codec: TinyResidualCodec, tmp_path: Path) -> None:
    codec.save_pretrained(tmp_path)
    loaded, codes = load_codec("tiny-residual", tmp_path), np.arange(40).reshape(10, 4) % 16
    assert np.array_equal(loaded.decode([codes])[0].samples, codec.decode([codes])[0].samples)


@pytest.mark.parametrize("damage", ["missing", "truncated", "settings"])
def test_a_damaged_folder_is_refused(codec: TinyResidualCodec, tmp_path: Path, damage: str) -> None:
    codec.save_pretrained(tmp_path)
    weights = tmp_path / "codec.safetensors"
    if damage == "missing":
        weights.unlink()
    elif damage == "truncated":
        weights.write_bytes(weights.read_bytes()[:100])
    else:
        (tmp_path / "codec.json").write_text('{"frames_per_code": 4}')
    with pytest.raises(CodecError, match=r"codec of codebooks from|codebooks have shape"):
        TinyResidualCodec.from_pretrained(tmp_path)


@pytest.mark.parametrize("samples", [np.zeros(0, np.float32), np.full(1600, np.nan, np.float32)])
def test_s81_clips_without_usable_samples_are_refused(codec: TinyResidualCodec, samples: np.ndarray) -> None:
    with pytest.raises(CodecError, match="cannot encode"):
        codec.encode(Audio(samples, 16_000))


def test_books_of_another_width_are_refused() -> None:
    with pytest.raises(CodecError, match="codebooks have shape"):
        TinyResidualCodec(torch.zeros(4, 16, 320), SETTINGS)
    with pytest.raises(CodecError, match="finite"):
        TinyResidualCodec(torch.full((4, 16, 640), float("inf")), SETTINGS)
