"""SNAC with random weights: which of seven codes goes to which level, held against the package's own calls."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from elocution.codecs import load_codec
from elocution.errors import CodecError
from elocution.types import Audio

snac = pytest.importorskip("snac", reason="needs the extra `snac`")

SMALL = {
    "sampling_rate": 24_000,
    "encoder_dim": 4,
    "encoder_rates": [2, 4, 8, 8],
    "decoder_dim": 32,
    "decoder_rates": [8, 8, 4, 2],
    "attn_window_size": None,
    "codebook_size": 4096,
    "codebook_dim": 4,
    "vq_strides": [4, 2, 1],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("snac")
    torch.manual_seed(0)
    (path / "config.json").write_text(json.dumps(SMALL))
    torch.save(snac.SNAC(**SMALL).state_dict(), path / "pytorch_model.bin")
    return path


def test_seven_codes_of_a_frame_go_to_three_levels_and_back(folder: Path) -> None:
    codec = load_codec("snac", folder)
    assert (codec.sample_rate, codec.frame_rate, codec.num_codebooks) == (24_000, 24_000 / 2048, 7)
    codes = np.arange(14).reshape(2, 7)
    (first,), (again,) = codec.decode([codes]), codec.decode([codes])
    assert np.array_equal(first.samples, again.samples)
    assert len(first.samples) == 2 * 2048
    levels = [[0, 7], [1, 4, 8, 11], [2, 3, 5, 6, 9, 10, 12, 13]]
    model = snac.SNAC.from_pretrained(str(folder))
    with torch.inference_mode(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        wanted = model.decode([torch.tensor([level]) for level in levels])
    assert np.array_equal(first.samples, wanted[0, 0].numpy())


def test_a_clip_is_encoded_as_the_package_does(folder: Path) -> None:
    samples = np.random.default_rng(0).normal(0, 0.1, 3 * 2048 + 100).astype(np.float32)
    codes = load_codec("snac", folder).encode(Audio(samples, 24_000))
    with torch.inference_mode():
        coarse, middle, fine = snac.SNAC.from_pretrained(str(folder)).encode(
            torch.from_numpy(samples[: 3 * 2048])[None, None]
        )
    assert codes[:, 0].tolist() == coarse[0].tolist()
    assert codes[:, [1, 4]].reshape(-1).tolist() == middle[0].tolist()
    assert codes[:, [2, 3, 5, 6]].reshape(-1).tolist() == fine[0].tolist()


def test_tensors_of_another_model_are_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(SMALL | {"decoder_dim": 64}))
    (tmp_path / "pytorch_model.bin").write_bytes((folder / "pytorch_model.bin").read_bytes())
    with pytest.raises(CodecError, match="cannot load the codec"):
        load_codec("snac", tmp_path)
    with pytest.raises(CodecError, match="cannot load the codec"):
        load_codec("snac", tmp_path / "absent")
