"""Recordings that give a voice -> their codes: each encoded once, with a codec that is not loaded before the first."""

import hashlib
from collections.abc import Callable
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from elocution.audio import read_audio
from elocution.codecs.base import Codec
from elocution.data.prompt_rows import VoiceSource
from elocution.data.voice_cache import VoiceCache
from elocution.errors import DataError
from elocution.types import Audio, Voice

__all__ = ["SHORTEST_VOICE_S", "VoiceReader", "read_recording"]

SHORTEST_VOICE_S = 0.1
"""A recording must last this long: of less no voice can be heard."""


def read_recording(source: Path | bytes) -> Audio:
    """What `read_audio` reads, if it is long enough to hold a voice.

    Raises: DataError if it is too short, or cannot be read.
    """
    audio = read_audio(source)
    if audio.duration_s < SHORTEST_VOICE_S:
        name = source if isinstance(source, Path) else "the clip"
        raise DataError(
            f"{name} lasts {audio.duration_s:.2f} s, in which no voice can be heard; take one of at least "
            f"{SHORTEST_VOICE_S} s"
        )
    return audio


class VoiceReader:
    """Reads voices; its codec, with the encoder that only this needs, goes when the reader goes."""

    def __init__(self, load: Callable[[], Codec], cache: VoiceCache | None = None) -> None:
        """`cache` has the codes that earlier runs made with the codec that `load` returns."""
        self._load, self._cache = load, cache
        self._known: dict[bytes, NDArray[np.int64]] = {}

    def read(self, source: VoiceSource) -> Voice:
        """Stored codes are taken as they are, whatever recording is named beside them.

        Raises: DataError if the recording cannot be read or is too short; CodecError if it cannot be encoded.
        """
        codes = source.codes
        if codes is None:
            assert source.audio is not None  # a row without codes names a recording
            codes = self._encode(source.audio)
        return Voice(hashlib.sha256(codes.tobytes()).hexdigest()[:16], source.text, codes, source.audio)

    def _encode(self, clip: Path | bytes) -> NDArray[np.int64]:
        key = clip if isinstance(clip, bytes) else str(clip).encode(errors="surrogateescape")
        if key not in self._known:
            self._known[key] = self._codes(clip)
        return self._known[key]

    def _codes(self, clip: Path | bytes) -> NDArray[np.int64]:
        audio = read_recording(clip)
        if self._cache is None:
            return self._codec.encode(audio)
        recording = clip if isinstance(clip, bytes) else clip.read_bytes()
        codes = self._cache.get(recording)
        if codes is None:
            codes = self._codec.encode(audio)
            self._cache.put(recording, codes)
        return codes

    @cached_property
    def _codec(self) -> Codec:
        return self._load()
