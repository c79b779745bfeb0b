"""One row of a prompt file: what it may hold, and what is wrong with it. Knows no file format and no codec."""

import unicodedata
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elocution.text.normalize import why_unverbalizable

__all__ = ["COLUMNS", "PromptRow", "VoiceSource", "check_row"]

COLUMNS = (
    *("id", "text", "language", "prompt_text", "prompt_audio", "prompt_codes"),
    *("description", "instruction", "emotion"),
)
_MAX_ID_BYTES = 120  # ids become parts of file names


@dataclass(frozen=True)
class VoiceSource:
    """The recording in whose voice a row is to be spoken: its words, and its codes or its sound (a file, or the bytes of
    one). Shapes: `codes` [F, Q]."""

    text: str
    audio: Path | bytes | None
    codes: NDArray[np.int64] | None


@dataclass(frozen=True)
class PromptRow:
    """A row that says what to speak; whether a policy can is not known yet."""

    id: str
    text: str
    language: str
    voice: VoiceSource | None
    description: str = ""
    instruction: str = ""
    emotion: str = ""


def check_row(row: Mapping[str, Any], default_id: str, languages: Collection[str], folder: Path) -> PromptRow | str:
    """The row, or what is wrong with it. Paths in it are relative to `folder`."""
    if unknown := sorted(row.keys() - set(COLUMNS)):
        return f"unknown keys {', '.join(unknown)}; known are {', '.join(sorted(COLUMNS))}"
    for key in row.keys() - {"prompt_codes"}:
        if key == "prompt_audio" and isinstance(row[key], bytes):
            continue
        if not isinstance(row[key], str):
            return f"{key!r} must be a string, found {row[key]!r:.80}"
        if not _is_plain(row[key]):
            return f"{key!r} holds a control character or half a surrogate pair: {row[key]!r:.80}"
    text = row.get("text", "").strip()
    if not text:
        return "the text is missing or empty"
    if not any(character.isalnum() for character in text):
        return f"the text {text!r} has nothing to speak, only punctuation"
    language = row.get("language", _usual_language(languages))
    if language not in languages:
        return f"the language {language!r} is not one of data.languages = {sorted(languages)}"
    if reason := why_unverbalizable(text, language):
        return reason
    identifier = row.get("id", default_id)
    if not identifier.strip():
        return "the id is empty"
    if set(identifier) & set("/\\\t\n\r") or len(identifier.encode()) > _MAX_ID_BYTES:
        limit = f"no slash or line break, at most {_MAX_ID_BYTES} bytes"
        return f"the id {identifier!r:.80} cannot be part of a file name: {limit}"
    voice = _voice(row, folder)
    if isinstance(voice, str):
        return voice
    described = (row.get(key, "").strip() for key in ("description", "instruction", "emotion"))
    return PromptRow(identifier, text, language, voice, *described)


def _usual_language(languages: Collection[str]) -> str:
    """That of rows which name none: the only one that rows may have, else English."""
    return next(iter(languages)) if len(languages) == 1 else "en"


def _voice(row: Mapping[str, Any], folder: Path) -> VoiceSource | str | None:
    words, audio, codes = (row.get(key) for key in ("prompt_text", "prompt_audio", "prompt_codes"))
    if words is None and audio is None and codes is None:
        return None
    if words is None or not words.strip():
        return "a voice needs its words: prompt_text is missing or empty"
    if audio is None and codes is None:
        return "prompt_text is the words of a recording, but there is neither prompt_audio nor prompt_codes"
    read = None if codes is None else _codes(codes)
    if isinstance(read, str):
        return read
    if isinstance(audio, str):
        audio = folder / audio
    return VoiceSource(words, audio, read)


def _codes(value: Any) -> NDArray[np.int64] | str:
    """[F, Q] from a list of codes, or of rows of codes."""
    rows = list(value) if isinstance(value, list | np.ndarray) else []
    if rows and all(type(code) is int for code in rows):
        rows = [[code] for code in rows]
    whole = all(isinstance(frame, list) and frame and all(type(code) is int for code in frame) for frame in rows)
    if not rows or not whole or len({len(frame) for frame in rows}) != 1:
        return f"'prompt_codes' must be a list of codes, or of equally long rows of codes, found {value!r:.80}"
    return np.array(rows, dtype=np.int64)


def _is_plain(value: str) -> bool:
    """Whether UTF-8 can hold `value` and no control character but white space is in it."""
    return not any(unicodedata.category(c) in ("Cc", "Cs") and c not in "\t\n\r" for c in value)
