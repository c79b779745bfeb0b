"""A codec that cannot speak what a policy writes is found before anything is trained."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from elocution.codecs.mel import MelSettings
from elocution.codecs.tiny import TinyCodec
from elocution.errors import CodecError, ConfigError
from elocution.policies.llasa import LlasaPolicy
from elocution.rollout.codec_fit import check_codec
from elocution.testing.policies import small_llasa
from elocution.types import Audio


def tiny_codec(num_codes: int = 16, **settings: int) -> TinyCodec:
    geometry = MelSettings(num_bands=8, **settings)
    return TinyCodec(torch.zeros(num_codes, geometry.frames_per_code * 8), geometry)


@pytest.fixture(scope="module")
def policy() -> LlasaPolicy:
    """16 codes in one codebook, 25 a second."""
    built = small_llasa()
    built.llama.config.codec_frame_rate = 25.0
    return built


def test_its_own_codec_fits_and_so_does_a_larger_one(policy: LlasaPolicy) -> None:
    for num_codes in (16, 17):
        check_codec(tiny_codec(num_codes), policy, name="c")


def test_s33_fewer_codes_than_the_policy_writes_are_refused(policy: LlasaPolicy) -> None:
    with pytest.raises(ConfigError, match="the codec c has 15 codes, the policy writes 16; choose the codec"):
        check_codec(tiny_codec(15), policy, name="c")


def test_another_number_of_codes_a_second_is_refused(policy: LlasaPolicy) -> None:
    with pytest.raises(ConfigError, match="the codec c has 50 codes per second, the policy was taught 25"):
        check_codec(tiny_codec(frames_per_code=2), policy, name="c")


def test_a_checkpoint_that_does_not_say_its_rate_takes_any() -> None:
    check_codec(tiny_codec(frames_per_code=2), small_llasa(), name="c")


class Claims:
    """A codec that says of itself what it is given, and decodes by `decoding`."""

    def __init__(self, decoding: Callable[[NDArray[np.int64]], Any] | None = None, **claims: Any) -> None:
        self.sample_rate, self.frame_rate, self.num_codebooks, self.codebook_size = 16_000, 25.0, 1, 16
        vars(self).update(claims)
        self.decoding = decoding or (lambda codes: Audio(np.zeros(len(codes) * 640, np.float32), 16_000))

    def encode(self, audio: Audio) -> NDArray[np.int64]:
        raise NotImplementedError

    def decode(self, codes: Sequence[NDArray[np.int64]]) -> list[Any]:
        return [self.decoding(clip) for clip in codes]


class LosesOne(Claims):
    def decode(self, codes: Sequence[NDArray[np.int64]]) -> list[Any]:
        return super().decode(codes)[1:]


def test_a_codec_that_keeps_its_word_fits(policy: LlasaPolicy) -> None:
    check_codec(Claims(), policy, name="c")
    check_codec(Claims(frame_rate=25), policy, name="c")


@pytest.mark.parametrize(
    ("codec", "message"),
    [
        (Claims(num_codebooks=8), "has 8 codebooks, the policy writes 1"),
        (Claims(sample_rate=0), "says sample_rate = 0, expected a positive whole number"),
        (Claims(sample_rate=16e3), "says sample_rate = 16000.0, expected a positive whole number"),
        (Claims(codebook_size="16"), "says codebook_size = '16'"),
        (Claims(num_codebooks=True), "says num_codebooks = True"),
        (Claims(frame_rate=float("nan")), "says frame_rate = nan, expected a positive number"),
        (Claims(frame_rate=None), "says frame_rate = None"),
        (Claims(lambda codes: codes), "decodes to ndarray, expected elocution.types.Audio"),
        (Claims(lambda codes: Audio(np.zeros(16_000, np.float32), 8_000)), "decodes at 8000 Hz, but says 16000"),
        (Claims(lambda codes: Audio(np.full(16_000, np.nan, np.float32), 16_000)), "samples that are not finite"),
        (Claims(lambda codes: Audio(np.zeros((2, 16_000), np.float32), 16_000)), "not finite or not mono"),
        (Claims(lambda codes: Audio(np.zeros(8_000, np.float32), 16_000)), "makes 0.50 s of 25 codes, .* be 1.00 s"),
        (Claims(lambda codes: Audio(np.zeros(0, np.float32), 16_000)), "makes 0.00 s of 25 codes"),
        (Claims(lambda codes: 1 / 0), r"cannot decode: ZeroDivisionError: .*test_codec_fit\.py:\d+"),
        (LosesOne(), "decodes 2 clips to 1"),
    ],
)
def test_a_codec_that_does_not_is_named(policy: LlasaPolicy, codec: Claims, message: str) -> None:
    with pytest.raises((CodecError, ConfigError), match=f"the codec mine .*{message}"):
        check_codec(codec, policy, name="mine")
