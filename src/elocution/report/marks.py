"""Which words of a text were heard wrongly, for a reader: the alignment behind the word error rate."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rapidfuzz.distance import Levenshtein

from elocution.errors import Unverbalizable
from elocution.measures.compare import compare

__all__ = ["Mark", "mark_words"]


@dataclass(frozen=True, slots=True)
class Mark:
    """Words that belong together: `equal` and `inserted` ones were heard, `deleted` ones were not, and of `replaced` ones
    `wanted` is what should have been heard.
    """

    kind: Literal["equal", "replaced", "deleted", "inserted"]
    wanted: str
    heard: str


_KINDS: dict[str, Literal["equal", "replaced", "deleted", "inserted"]] = {
    "equal": "equal",
    "replace": "replaced",
    "delete": "deleted",
    "insert": "inserted",
}


def mark_words(text: str, transcript: str, language: str | None) -> list[Mark]:
    """The alignment of `transcript` with `text` by the rules of `language`, in the order of speech.

    Where nothing can be aligned, the transcript as it is: without a language, or if the text cannot be spoken.
    """
    if language is None:
        return [Mark("equal", "", transcript)]
    try:
        compared = compare(text, transcript, language)
    except Unverbalizable:
        return [Mark("equal", "", transcript)]
    wanted, heard = compared.reference, compared.hypothesis
    return [
        Mark(
            _KINDS[part.tag],
            _joined(wanted, part.src_start, part.src_end),
            _joined(heard, part.dest_start, part.dest_end),
        )
        for part in Levenshtein.opcodes(wanted, heard)
    ]


def _joined(units: Sequence[str], start: int, end: int) -> str:
    return " ".join(units[start:end])
