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
from elocution.types import Voice

__all__ = ["SHORTEST_VOICE_S", "VoiceReader"]

SHORTEST_VOICE_S = 0.1
"""A recording must last this long: of less no voice can be heard."""


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
        audio = read_audio(clip)
        if audio.duration_s < SHORTEST_VOICE_S:
            raise DataError(
                f"{clip if isinstance(clip, Path) else 'the recording'} lasts {audio.duration_s:.2f} s, in which no voice can "
                f"be heard; take one of at least {SHORTEST_VOICE_S} s"
            )
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
