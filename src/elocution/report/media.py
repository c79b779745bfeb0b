"""The clips of a run for a page: embedded in it, or left to a server; either way a browser reads them when they are asked for."""

import base64
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

import soundfile

from elocution.audio import read_audio
from elocution.errors import DataError
from elocution.report.spectrogram import draw_spectrogram
from elocution.types import Audio

__all__ = ["Clip", "EmbeddedClips", "LinkedClips", "Media", "encode_flac"]


@dataclass(frozen=True, slots=True)
class Clip:
    """Where a page's script finds a clip's sound and picture: `#id` of an element that holds base64, or an address."""

    audio: str
    picture: str


class Media(Protocol):
    """Gives a page its clips."""

    def clip(self, name: str | None) -> Clip | None:
        """The clip in the file `name` of the run; None where there is no sound that can be read."""

    def elements(self) -> Iterator[tuple[str, str]]:
        """Id and base64 of all that the page itself must hold, once every clip was asked for."""


class EmbeddedClips:
    """Clips inside the page, losslessly compressed."""

    def __init__(self, run: Path) -> None:
        self._run = run
        self._clips: dict[str, Clip] = {}
        self._elements: dict[str, str] = {}

    def clip(self, name: str | None) -> Clip | None:
        if name is None:
            return None
        if name not in self._clips:
            try:
                audio = read_audio(self._run / name)
            except DataError:  # missing or damaged
                return None
            number = len(self._clips)
            self._clips[name] = Clip(f"#sound-{number}", f"#picture-{number}")
            self._elements[f"sound-{number}"] = _base64(encode_flac(audio))
            self._elements[f"picture-{number}"] = _base64(draw_spectrogram(audio))
        return self._clips[name]

    def elements(self) -> Iterator[tuple[str, str]]:
        yield from self._elements.items()


class LinkedClips:
    """Clips that a server gives out under `/sound/` and `/picture/`."""

    def __init__(self, run: Path) -> None:
        self._run = run

    def clip(self, name: str | None) -> Clip | None:
        if name is None or not (self._run / name).is_file():
            return None
        return Clip(f"/sound/{quote(name)}", f"/picture/{quote(name)}")

    def elements(self) -> Iterator[tuple[str, str]]:
        yield from ()


def encode_flac(audio: Audio) -> bytes:
    """The bytes of a FLAC file of 16 bits."""
    buffer = io.BytesIO()
    soundfile.write(buffer, audio.samples, audio.sample_rate, format="FLAC", subtype="PCM_16")
    return buffer.getvalue()


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
