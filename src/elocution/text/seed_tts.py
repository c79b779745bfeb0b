"""The text protocol of seed-tts-eval: punctuation dropped, nothing else read; for numbers that others can compare with.

It counts "50" against "fifty" as an error, and keeps stage directions as words, as published results do.
"""

import re
import string
from collections.abc import Callable

from zhon.hanzi import punctuation

from elocution.errors import DataError
from elocution.text.normalize import simplify

__all__ = ["SEED_TTS_LANGUAGES", "SEED_TTS_VERSION", "seed_tts_units"]

SEED_TTS_VERSION = "seed-tts-1"
SEED_TTS_LANGUAGES = ("en", "zh")
_PUNCTUATION = str.maketrans("", "", (punctuation + string.punctuation).replace("'", ""))


def seed_tts_units(
    text: str, language: str, *, is_transcript: bool, to_simplified: Callable[[str], str] = simplify
) -> tuple[str, ...]:
    """Lower-case words of an English text; every character but spaces of a Chinese one, Latin letters too.

    Chinese transcripts, and only they, are brought to simplified script. The public scorer does that with zhconv (zh-cn),
    which a caller may pass: it differs from `simplify` in regional words.

    Raises: DataError if `language` is neither en nor zh, for which alone the protocol is defined.
    Source: BytedanceSpeech/seed-tts-eval `run_wer.py`.
    """
    if language not in SEED_TTS_LANGUAGES:
        raise DataError(
            f"the seed-tts protocol is defined for en and zh, not for {language!r}; use the spoken comparison"
        )
    if language == "zh" and is_transcript:
        text = to_simplified(text)
    plain = text.translate(_PUNCTUATION)
    if language == "zh":
        return tuple("".join(plain.split()))
    # A single tab or unbreakable space does not part words there: its aligner splits at spaces alone.
    return tuple(word for word in re.sub(r"\s\s+", " ", plain.lower()).strip().split(" ") if word)
