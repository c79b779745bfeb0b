"""One way to reduce a text to the words that are compared; the same for reference and transcript."""

import re
import unicodedata

__all__ = ["NORMALIZER_VERSION", "normalize"]

NORMALIZER_VERSION = "basic-1"
_TAGS = re.compile(r"<[^>]*>|\[[^\]]*\]|\([^)]*\)")


def normalize(text: str, language: str) -> str:
    """Lower-case words separated by one space; tags in <…>, […] or (…) and punctuation are dropped.

    Apostrophes inside a word are kept. `language` has no influence in this version.
    """
    plain = _TAGS.sub(" ", unicodedata.normalize("NFKC", text).lower().replace("’", "'"))
    spaced = "".join(c if unicodedata.category(c)[0] in "LNM" or c == "'" else " " for c in plain)
    return " ".join(word for word in (word.strip("'") for word in spaced.split()) if word)
