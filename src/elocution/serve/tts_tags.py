"""The tags that may stand before a text in SGLang's multi-channel fork. Pure."""

import re
from dataclasses import dataclass

from elocution.serve.http import RequestError

__all__ = ["TaggedText", "read_tags"]

_TAG = re.compile(r"\$\{(\w+):([^}]*)\}")
_ORDER = ("token", "instruction", "ambient_sound")


@dataclass(frozen=True)
class TaggedText:
    """A text and how it shall be spoken."""

    text: str
    instruction: str = ""


def read_tags(text: str) -> TaggedText:
    """Reads `${instruction:…}`; a value ends at the first brace.

    Raises: RequestError for a tag that is unknown, twice there, out of order, or cannot be followed here.
    """
    found: dict[str, str] = {}
    while text.startswith("${"):
        tag = _TAG.match(text)
        if tag is None or tag[1] not in _ORDER:
            raise RequestError("unknown_tag", f"the text starts with {text[:40]!r}; known tags: ${{instruction:…}}")
        if found and _ORDER.index(tag[1]) <= max(map(_ORDER.index, found)):
            raise RequestError("unknown_tag", f"tags must stand once each, in the order {', '.join(_ORDER)}")
        found[tag[1]] = tag[2]
        text = text[tag.end() :]
    for name in ("token", "ambient_sound"):
        if name in found:
            raise RequestError("unsupported_tag", f"${{{name}:…}} cannot be followed; the model chooses by itself")
    return TaggedText(text, found.get("instruction", "").strip())
