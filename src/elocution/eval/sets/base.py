"""What an evaluation speaks: items in a fixed order, whatever format they came in. Reads no sound."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from elocution.data.prompt_rows import VoiceSource
from elocution.errors import DataError

__all__ = ["EvalItem", "EvalSet", "build_set", "name_some"]

_SHOWN = 10


@dataclass(frozen=True, slots=True)
class EvalItem:
    """A text to be spoken, in the voice of a prompt where the set has one.

    `prompt_text` is the words of `prompt_audio`, empty where the set does not give them; `prompt_codes` [F, Q] stands for
    the recording where a manifest stores codes. `recording` is a person saying `text`.
    """

    id: str
    text: str
    language: str
    prompt_text: str = ""
    prompt_audio: Path | bytes | None = None
    prompt_codes: NDArray[np.int64] | None = None
    recording: Path | None = None

    @property
    def voice(self) -> VoiceSource | None:
        """The voice for a policy, which needs the words of the recording as well."""
        if not self.prompt_text or (self.prompt_audio is None and self.prompt_codes is None):
            return None
        return VoiceSource(self.prompt_text, self.prompt_audio, self.prompt_codes)

    @property
    def reference(self) -> Path | None:
        """The file with the voice that likeness is measured against."""
        return self.prompt_audio if isinstance(self.prompt_audio, Path) else None


@dataclass(frozen=True)
class EvalSet:
    """Items with unique ids that can be parts of file names. `kind` is the format that they were read from."""

    name: str
    kind: str
    items: tuple[EvalItem, ...]

    @cached_property
    def digest(self) -> str:
        """Equal for sets that ask for the same texts in the same voices."""
        rows = [
            [item.id, item.text, item.language, item.prompt_text, item.reference.name if item.reference else ""]
            for item in self.items
        ]
        return hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:16]

    def first(self, count: int) -> "EvalSet":
        """The set of the first `count` items."""
        return replace(self, items=self.items[:count])

    @property
    def languages(self) -> tuple[str, ...]:
        return tuple(sorted({item.language for item in self.items}))


def build_set(name: str, kind: str, source: Path, items: Iterable[EvalItem]) -> EvalSet:
    """The set of `items`, which were read from `source`.

    Raises: DataError if there is none, an id comes twice or cannot be a file name, a text is empty, or a recording that an
    item names is missing; all missing files are counted.
    """
    found = tuple(items)
    if not found:
        raise DataError(f"{source} has no items")
    seen: set[str] = set()
    for item in found:
        if item.id in seen:
            raise DataError(f"two items of {source} have the id {item.id!r}")
        if not item.id or set(item.id) & set("/\\\t\n\r"):
            raise DataError(f"the id {item.id!r} in {source} cannot be part of a file name")
        if not item.text.strip():
            raise DataError(f"the text of {item.id!r} in {source} is empty")
        seen.add(item.id)
    missing = [item for item in found if item.reference is not None and not item.reference.is_file()]
    if missing:
        raise DataError(
            f"{source}: {len(found) - len(missing)} of {len(found)} prompt recordings are there, {len(missing)} are missing: "
            + name_some([f"{item.id} ({item.reference})" for item in missing])
        )
    return EvalSet(name, kind, found)


def name_some(names: Sequence[str]) -> str:
    """The first of `names`, and how many more there are."""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
