"""Prompt files: JSON lines -> utterances, every bad row named by file and line."""

import json
import unicodedata
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from elocution.audio import find_audio_fault
from elocution.errors import DataError
from elocution.text.normalize import why_unverbalizable
from elocution.types import Utterance

__all__ = ["BadRow", "PromptSet", "load_prompts"]

_KEYS = frozenset({"id", "text", "language", "reference_audio", "description"})
_MAX_ID_BYTES = 120  # ids become parts of file names
_SHOWN = 10


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that cannot be used, and why."""

    path: Path
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.reason}"


@dataclass(frozen=True)
class PromptSet:
    """The usable rows of a file in its order, and those that were skipped."""

    utterances: tuple[Utterance, ...]
    skipped: tuple[BadRow, ...]


def load_prompts(
    path: Path,
    *,
    languages: Collection[str],
    on_bad_row: Literal["stop", "skip"],
    check_text: Callable[[Utterance], str | None],
) -> PromptSet:
    """Reads rows `{"text": …, "id": …, "language": …}`; `id` defaults to `<stem>-<line>`, `language` to "en".

    A row may have `reference_audio`, a file relative to this one with the voice that rewards compare with, and
    `description`, what the clip should sound like.

    `check_text` gives the reason why a policy cannot speak an utterance, or None.

    Raises: DataError if the file cannot be read, if a row is bad and `on_bad_row` is "stop", or if no row is left.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise DataError(f"cannot read the prompt file {path}: {error.strerror}") from error
    utterances: list[Utterance] = []
    bad: list[BadRow] = []
    lines_of: dict[str, int] = {}
    for number, line in enumerate(raw.removeprefix(b"\xef\xbb\xbf").splitlines(), start=1):
        if not line.strip():
            continue
        utterance, reason = _parse(line, f"{path.stem}-{number}", languages, path.parent)
        if utterance is not None and utterance.id in lines_of:
            reason = f"the id {utterance.id!r} is already that of line {lines_of[utterance.id]}"
        if utterance is not None and reason is None:
            reason = check_text(utterance)
        if utterance is None or reason is not None:
            bad.append(BadRow(path, number, reason or "not usable"))
            continue
        lines_of[utterance.id] = number
        utterances.append(utterance)
    shown = "".join(f"\n  {row}" for row in bad[:_SHOWN])
    shown += f"\n  … and {len(bad) - _SHOWN} more" if len(bad) > _SHOWN else ""
    if bad and on_bad_row == "stop":
        raise DataError(
            f'{len(bad)} bad rows in {path} (data.on_bad_row = "skip" leaves them out and lists them):{shown}'
        )
    if not utterances:
        raise DataError(f"no usable row in {path}: {f'{len(bad)} bad rows:{shown}' if bad else 'it is empty'}")
    return PromptSet(tuple(utterances), tuple(bad))


def _parse(
    line: bytes, default_id: str, languages: Collection[str], folder: Path
) -> tuple[Utterance | None, str | None]:
    try:
        # Given bytes, json would guess other encodings too.
        row: Any = json.loads(line.decode("utf-8"), object_pairs_hook=_unrepeated)
    except UnicodeDecodeError:
        return None, "not UTF-8 text"
    except json.JSONDecodeError as error:
        return None, f"malformed JSON: {error.msg} at column {error.colno}"
    except (ValueError, RecursionError) as error:  # a repeated key, thousands of digits or of nested brackets
        return None, f"unusable JSON: {error}"
    if not isinstance(row, dict):
        return None, f"expected a JSON object, found {type(row).__name__}"
    if unknown := sorted(row.keys() - _KEYS):
        return None, f"unknown keys {', '.join(unknown)}; known are {', '.join(sorted(_KEYS))}"
    for key in row:
        if not isinstance(row[key], str):
            return None, f"{key!r} must be a string, found {row[key]!r:.80}"
        if not _is_plain(row[key]):
            return None, f"{key!r} holds a control character or half a surrogate pair: {row[key]!r:.80}"
    text = row.get("text", "").strip()
    if not text:
        return None, "the text is missing or empty"
    if not any(character.isalnum() for character in text):
        return None, f"the text {text!r} has nothing to speak, only punctuation"
    language = row.get("language", "en")
    if language not in languages:
        return None, f"the language {language!r} is not one of data.languages = {sorted(languages)}"
    if reason := why_unverbalizable(text, language):
        return None, reason
    identifier = row.get("id", default_id)
    if not identifier.strip():
        return None, "the id is empty"
    if set(identifier) & set("/\\\t\n\r") or len(identifier.encode()) > _MAX_ID_BYTES:
        limit = f"no slash or line break, at most {_MAX_ID_BYTES} bytes"
        return None, f"the id {identifier!r:.80} cannot be part of a file name: {limit}"
    reference = row.get("reference_audio", "")
    if reference:
        reference = str(folder / reference)
        if fault := find_audio_fault(Path(reference)):
            return None, f"reference_audio: {fault}"
    return Utterance(identifier, text, language, reference, row.get("description", "").strip()), None


def _unrepeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    keys = [key for key, _ in pairs]
    if repeated := sorted({key for key in keys if keys.count(key) > 1}):
        raise ValueError(f"{', '.join(map(repr, repeated))} is given more than once")
    return dict(pairs)


def _is_plain(value: str) -> bool:
    """Whether UTF-8 can hold `value` and no control character but white space is in it."""
    return not any(unicodedata.category(c) in ("Cc", "Cs") and c not in "\t\n\r" for c in value)
