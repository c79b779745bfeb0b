"""Whether a codec can speak what a policy writes, found before anything is trained."""

import math

import numpy as np

from elocution.codecs.base import Codec
from elocution.errors import CodecError, ConfigError, ElocutionError
from elocution.policies.base import Policy
from elocution.registry import describe_failure
from elocution.types import Audio

__all__ = ["check_codec"]

_RATE_TOLERANCE = 0.01
_LENGTH_TOLERANCE = 0.1


def check_codec(codec: Codec, policy: Policy, *, name: str) -> None:
    """Compares what codec and policy say of themselves, and lets the codec decode a second.

    Raises: ConfigError if `codec`, which `name` stands for, is not that of the policy; CodecError if it does not keep
    its word.
    """
    _check_claims(codec, name)
    if codec.num_codebooks != policy.num_codebooks:
        raise ConfigError(
            f"the codec {name} has {codec.num_codebooks} codebooks, the policy writes {policy.num_codebooks}; "
            "choose the codec that the checkpoint was trained with"
        )
    if codec.codebook_size < policy.codebook_size:
        raise ConfigError(
            f"the codec {name} has {codec.codebook_size} codes, the policy writes {policy.codebook_size}; "
            "choose the codec that the checkpoint was trained with"
        )
    if policy.frame_rate is not None and not math.isclose(codec.frame_rate, policy.frame_rate, rel_tol=_RATE_TOLERANCE):
        raise ConfigError(
            f"the codec {name} has {codec.frame_rate:g} codes per second, the policy was taught {policy.frame_rate:g}; "
            "choose the codec that the checkpoint was trained with"
        )
    _check_sound(codec, name, highest=policy.codebook_size - 1)


def _check_claims(codec: Codec, name: str) -> None:
    claims = {
        "sample_rate": codec.sample_rate,
        "num_codebooks": codec.num_codebooks,
        "codebook_size": codec.codebook_size,
        "frame_rate": codec.frame_rate,
    }
    for claim, value in claims.items():
        whole = claim != "frame_rate"
        fits = isinstance(value, int) or (not whole and isinstance(value, float))
        if not fits or isinstance(value, bool) or not 0 < value < math.inf:
            kind = "whole number" if whole else "number"
            raise CodecError(f"the codec {name} says {claim} = {value!r:.80}, expected a positive {kind}")


def _check_sound(codec: Codec, name: str, *, highest: int) -> None:
    """A second of the lowest code and one of the highest must become a second of sound each."""
    frames = max(1, round(codec.frame_rate))
    wanted_s = frames / codec.frame_rate
    clips = [np.full((frames, codec.num_codebooks), code, dtype=np.int64) for code in (0, highest)]
    try:
        decoded = codec.decode(clips)
        for audio in decoded:
            if not isinstance(audio, Audio):
                raise CodecError(f"the codec {name} decodes to {type(audio).__name__}, expected elocution.types.Audio")
            if audio.sample_rate != codec.sample_rate:
                raise CodecError(f"the codec {name} decodes at {audio.sample_rate} Hz, but says {codec.sample_rate}")
            if audio.samples.ndim != 1 or not np.isfinite(audio.samples).all():
                raise CodecError(f"the codec {name} decodes to samples that are not finite or not mono")
            if not math.isclose(audio.duration_s, wanted_s, rel_tol=_LENGTH_TOLERANCE):
                raise CodecError(
                    f"the codec {name} makes {audio.duration_s:.2f} s of {frames} codes, at {codec.frame_rate:g} codes "
                    f"per second it should be {wanted_s:.2f} s"
                )
    except ElocutionError:
        raise
    except Exception as error:  # a codec of the user's own may fail in any way
        raise CodecError(f"the codec {name} cannot decode: {describe_failure(error)}") from error
    if len(decoded) != len(clips):
        raise CodecError(f"the codec {name} decodes {len(clips)} clips to {len(decoded)}")
