"""The one way from a text to the words that are compared, for references and transcripts, rewards and evaluation.

A text becomes slots with all their readings (`read`); `normalize` gives the usual one, `pair_readings` the one that fits
another text best. Change the version with every change of an answer.
"""

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from opencc import OpenCC
from whisper_normalizer.english import EnglishSpellingNormalizer

from elocution.text import chinese, english, french, german, japanese, korean, spanish
from elocution.text.language import route_language
from elocution.text.lattice import Pairing, Reading, Slot, first_readings, nearest_readings
from elocution.text.markup import strip_markup
from elocution.text.rules import Rule, apply_rules

__all__ = [
    "NORMALIZED_LANGUAGES",
    "NORMALIZER_VERSION",
    "compares_characters",
    "normalize",
    "pair_readings",
    "read",
    "simplify",
    "why_unverbalizable",
]

NORMALIZER_VERSION = "spoken-2"


@dataclass(frozen=True, slots=True)
class _Language:
    rules: tuple[Rule, ...]
    characters: bool = False  # spaces mean nothing in speech and vary in transcripts: the unit is the character
    prepare: Callable[[str], str] = str
    spell: Callable[[str], tuple[str, ...]] = lambda word: ()


_HAN_AND_KANA = "\u3005\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_TOKEN = re.compile(f"[{_HAN_AND_KANA}]|[^{_HAN_AND_KANA}]+")
_TOKEN_KO = re.compile(f"[{_HAN_AND_KANA}\uac00-\ud7a3]|[^{_HAN_AND_KANA}\uac00-\ud7a3]+")
_SUPERSCRIPT = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹]+")
_VULGAR_FRACTION = re.compile("(?<=\\d)(?=[¼½¾⅐-⅞])")
_PLAIN = str.maketrans(
    {"’": "'", "‘": "'", "ʼ": "'", "−": "-", "‐": "-", "‑": "-", "·": " ", "⋅": "×", "∙": "×", "⁄": "/"}
)
_VARIANTS = str.maketrans({"〇": "零", "妳": "你"})
_LIGATURES = str.maketrans({"œ": "oe", "Œ": "OE", "æ": "ae", "Æ": "AE"})
_SILENT = frozenset("→←↑↓↔⇒⇐")
_HIRAGANA = {code: code - 0x60 for code in range(0x30A1, 0x30F7)}


@cache
def _simplifier() -> OpenCC:
    return OpenCC("t2s")


def simplify(text: str) -> str:
    """Traditional Chinese characters as simplified ones, one by one or by phrase."""
    return str(_simplifier().convert(text))


@cache
def _taiwanese_simplifier() -> OpenCC:
    return OpenCC("tw2s")  # as t2s, and knows 看著 from 著名


def _plain_chinese(text: str) -> str:
    """Simplified script, and one form of characters that are written in two."""
    return str(_taiwanese_simplifier().convert(text)).translate(_VARIANTS)


@cache
def _spellings() -> dict[str, str]:
    mapping: dict[str, str] = EnglishSpellingNormalizer().mapping
    return {**mapping, "okay": "ok"}


def _spell_english(word: str) -> tuple[str, ...]:
    """Other spellings that sound the same: American for British, a possessive or a negation without its apostrophe,
    a borrowed word without its accents."""
    other = _spellings().get(word)
    bare = word.replace("'", "") if word.endswith(("'s", "n't")) else None
    plain = "".join(c for c in unicodedata.normalize("NFD", word) if not unicodedata.combining(c))
    return tuple(spelling for spelling in (other, bare, plain) if spelling and spelling != word)


_LANGUAGES = {
    "en": _Language(english.RULES, spell=_spell_english),
    "de": _Language(german.RULES, prepare=lambda text: text.replace("ß", "ss").replace("ẞ", "SS")),
    "fr": _Language(
        french.RULES,
        prepare=lambda text: re.sub(r"\b([cdjlmnst]|qu)'", r"\1' ", text, flags=re.IGNORECASE).translate(_LIGATURES),
    ),
    "es": _Language(spanish.RULES),
    "zh": _Language(chinese.RULES, characters=True, prepare=_plain_chinese),
    "ja": _Language(
        japanese.RULES, characters=True, prepare=lambda text: text.translate(_HIRAGANA).replace("〇", "零")
    ),
    "ko": _Language(korean.RULES, characters=True),
}
NORMALIZED_LANGUAGES = tuple(_LANGUAGES)


_NO_RULES = _Language(())


def compares_characters(language: str) -> bool:
    """Whether texts of `language` are compared character by character (words of Latin script stay whole)."""
    return language in _LANGUAGES and _LANGUAGES[language].characters


def normalize(text: str, language: str) -> str:
    """The usual reading of `text`: lower-case words, one space between; each Chinese, Japanese or Korean character is one.

    Markup and punctuation are dropped, numbers and symbols written out, apostrophes inside a word kept. Empty if there is
    nothing to speak. In a language without rules, digits stay digits.
    """
    return " ".join(first_readings(read(text, language)))


def read(text: str, language: str) -> tuple[Slot, ...]:
    """The slots of `text` with every reading. `language` is an ISO 639-1 code and is taken at its word."""
    rules = _LANGUAGES.get(language, _NO_RULES)

    def words(part: str) -> tuple[str, ...]:
        return _words(part, language)

    slots = apply_rules(_prepared(text), rules.rules, words)
    return tuple(_with_spellings(slot, rules) for slot in slots)


def pair_readings(reference: str, hypothesis: str, language: str) -> Pairing:
    """The readings of two texts with the fewest edits between them, and why words that differ in writing count as equal."""
    return nearest_readings(read(reference, language), read(hypothesis, language))


def why_unverbalizable(text: str, language: str) -> str | None:
    """Why `text` cannot be spoken and compared, or None: only punctuation or emoji, a symbol or number without rules."""
    routed = route_language(strip_markup(text), language)
    prepared = _prepared(text)
    if routed not in _LANGUAGES and re.search(r"\d", prepared):
        return f"unverbalizable: no rules for numbers in {routed!r}, only in {', '.join(_LANGUAGES)}: {text!r:.80}"
    known = [rule.pattern for rule in _LANGUAGES.get(routed, _NO_RULES).rules if rule.name == "symbol"]
    for character in prepared:
        if unicodedata.category(character) not in ("Sm", "Sc") or character in _SILENT:
            continue
        if not any(pattern.match(character) for pattern in known):
            return f"unverbalizable: no reading for {character!r} in {text!r:.80}"
    if not any(character.isalnum() for character in prepared) or not normalize(text, routed):
        return f"unverbalizable: {text!r:.80} has nothing to speak, only punctuation, emoji or tags"
    return None


def _prepared(text: str) -> str:
    """Text without markup, in one width and one form of quotes and dashes; a² is a^2."""
    raised = _SUPERSCRIPT.sub(lambda match: "^" + unicodedata.normalize("NFKC", match.group()), text)
    plain = unicodedata.normalize("NFKC", _VULGAR_FRACTION.sub(" ", raised)).translate(_PLAIN)
    ascii_digits = "".join(str(unicodedata.decimal(c)) if c.isdecimal() else c for c in plain)
    return strip_markup(ascii_digits)


def _words(text: str, language: str) -> tuple[str, ...]:
    plain = _LANGUAGES.get(language, _NO_RULES).prepare(unicodedata.normalize("NFKC", text.lower()))
    spaced = "".join(c if unicodedata.category(c)[0] in "LNM" or c == "'" else " " for c in plain)
    token = _TOKEN_KO if language == "ko" else _TOKEN
    parts = (part.strip("'") for word in spaced.split() for part in token.findall(word))
    return tuple(part for part in parts if part)


def _with_spellings(slot: Slot, language: _Language) -> Slot:
    if len(slot.readings) > 1 or len(slot.readings[0].words) != 1:
        return slot
    more = tuple(Reading((spelling,), "spelling") for spelling in language.spell(slot.readings[0].words[0]))
    return Slot(slot.written, slot.readings + more) if more else slot
