"""Recordings that requests bring, or name in one folder, as voices; each is encoded once while it is remembered."""

import base64
import binascii
import hashlib
import io
import re
import threading
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile
from numpy.typing import NDArray

from elocution.audio import read_audio
from elocution.codecs.base import Codec
from elocution.data.voices import SHORTEST_VOICE_S
from elocution.errors import CodecError, DataError
from elocution.serve.http import RequestError
from elocution.types import Voice

__all__ = ["ReferenceLimits", "References"]

_DATA = re.compile(r"data:[\w.+-]*/?[\w.+-]*(?:;[\w=.+-]+)*;base64,")
_REMEMBERED = 64


@dataclass(frozen=True)
class ReferenceLimits:
    """Units: seconds; bytes of a file, as it is compressed."""

    min_s: float = SHORTEST_VOICE_S
    max_s: float = 60.0
    max_bytes: int = 16 << 20


class References:
    """Safe to use in many threads; the codec is used by one at a time."""

    def __init__(self, codec: Codec, folder: Path | None, limits: ReferenceLimits) -> None:
        """Paths are read below `folder` alone, none without one. Nothing is fetched."""
        self._codec, self._limits = codec, limits
        self._folder = folder.resolve() if folder else None
        self._known: OrderedDict[str, NDArray[np.int64]] = OrderedDict()
        self._lock = threading.Lock()

    def read(self, source: str, text: str) -> Voice:
        """The voice of a data URI or a path; `text` are the words of the recording.

        Raises: RequestError if it may not be read, is no recording, or is too short or too long.
        """
        content = self._content(source)
        key = hashlib.sha256(content).hexdigest()
        with self._lock:
            codes = self._known.pop(key, None)
            if codes is None:
                codes = self._encode(content)
            self._known[key] = codes
            if len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        return Voice(hashlib.sha256(codes.tobytes()).hexdigest()[:16], text, codes)

    def _content(self, source: str) -> bytes:
        if source.startswith("data:"):
            head = _DATA.match(source)
            if head is None:
                raise RequestError("malformed_reference", "a data URI must be data:audio/wav;base64,…")
            try:
                content = base64.b64decode(source[head.end() :], validate=True)
            except binascii.Error as error:
                raise RequestError("malformed_reference", f"the data URI is no base64: {error}") from error
        else:
            path = self._path(source)
            if path.stat().st_size > self._limits.max_bytes:
                raise self._too_large(path.stat().st_size)
            content = path.read_bytes()
        if len(content) > self._limits.max_bytes:
            raise self._too_large(len(content))
        return content

    def _path(self, source: str) -> Path:
        name = source.removeprefix("file://")
        if "://" in name:
            raise RequestError("reference_not_allowed", "URLs are not fetched; send the recording as a data URI")
        if self._folder is None:
            raise RequestError(
                "reference_not_allowed",
                "this server reads no paths: send the recording as a data URI, or start it with --audio-dir",
            )
        path = (self._folder / name).resolve() if "\0" not in name else self._folder.parent
        if not path.is_relative_to(self._folder):
            raise RequestError("reference_not_allowed", f"{name!r:.80} is not below the server's --audio-dir")
        if not path.is_file():
            raise RequestError("no_reference", f"there is no file {name!r:.80} below the server's --audio-dir")
        return path

    def _encode(self, content: bytes) -> NDArray[np.int64]:
        try:
            # Before anything is decoded: an hour of silence is a few kilobytes of FLAC.
            duration_s = soundfile.info(io.BytesIO(content)).duration
            if not self._limits.min_s <= duration_s <= self._limits.max_s:
                raise RequestError(
                    "reference_length",
                    f"the recording has {duration_s:.2f} s, it must have {self._limits.min_s:g} to {self._limits.max_s:g}",
                )
            return self._codec.encode(read_audio(content))
        except soundfile.LibsndfileError as error:
            raise RequestError("malformed_reference", f"the recording cannot be read: {error}") from error
        except (DataError, CodecError) as error:
            raise RequestError("malformed_reference", str(error)) from error

    def _too_large(self, size: int) -> RequestError:
        return RequestError(
            "reference_length", f"the recording has {size} bytes, the limit is {self._limits.max_bytes}"
        )
