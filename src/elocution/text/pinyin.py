"""Chinese texts as pinyin syllables: characters that sound alike compare equal, words of other scripts stay whole."""

import re
from collections.abc import Sequence

from pypinyin import Style, lazy_pinyin, pinyin

from elocution.text.lattice import Reading, Slot

__all__ = ["pinyin_slots"]

_HAN = re.compile("[\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")


def pinyin_slots(words: Sequence[str], *, tones: bool, polyphones: bool) -> tuple[Slot, ...]:
    """One slot per word of a normalised text: a syllable for a Chinese character, the word itself otherwise.

    With `tones`, tones are digits after sandhi (一个 is yi2 ge4), 5 is the neutral tone. With `polyphones`, a character
    has every reading that the dictionary lists, after the one that fits its context.
    """
    slots: list[Slot] = []
    run: list[str] = []
    for word in [*words, ""]:
        if _HAN.fullmatch(word):
            run.append(word)
            continue
        slots.extend(_syllables(run, tones=tones, polyphones=polyphones))
        run = []
        if word:
            slots.append(Slot(word, (Reading((word,)),)))
    return tuple(slots)


def _syllables(characters: Sequence[str], *, tones: bool, polyphones: bool) -> list[Slot]:
    style = Style.TONE3 if tones else Style.NORMAL
    text = "".join(characters)
    in_context = lazy_pinyin(text, style=style, tone_sandhi=tones, neutral_tone_with_five=tones) if text else []
    if len(in_context) != len(characters):  # characters that the dictionary lacks come back as one run
        in_context = [lazy_pinyin(character, style=style, neutral_tone_with_five=tones)[0] for character in characters]
    slots = []
    for character, syllable in zip(characters, in_context, strict=True):
        readings = [Reading((syllable,))]
        if polyphones:
            listed = pinyin(character, style=style, heteronym=True, neutral_tone_with_five=tones)[0]
            readings += [Reading((other,), "polyphone") for other in listed if other != syllable]
        slots.append(Slot(character, tuple(readings)))
    return slots
