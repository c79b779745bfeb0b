"""How a language says what it reads: rules that turn a stretch of text into slots, and the rules many languages share."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from elocution.text.lattice import Reading, Slot

__all__ = [
    "ADDRESS",
    "NUMBER",
    "Rule",
    "amounts_of",
    "apply_rules",
    "distinct",
    "one",
    "products",
    "range_rule",
    "symbol_rule",
    "unit_pattern",
    "web_rule",
]

NUMBER = r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?"
"""Pattern of a number in digits, thousands by commas or not at all."""

_WORDS = Callable[[str], tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Rule:
    """`read` answers a match with slots, each a list of readings as text, the usual one first; "" is silence."""

    name: str
    pattern: re.Pattern[str]
    read: Callable[[re.Match[str]], Sequence[Sequence[str]]]


def distinct(readings: Iterable[str]) -> list[str]:
    """The readings in their order, each once."""
    return list(dict.fromkeys(readings))


def one(readings: Iterable[str]) -> list[list[str]]:
    """A single slot with these readings."""
    return [distinct(readings)]


def products(*parts: Sequence[str], limit: int = 64) -> list[str]:
    """Every way to say the parts one after the other, at most `limit`."""
    said = [""]
    for part in parts:
        said = [f"{before} {after}".strip() for before in said for after in part][:limit]
    return distinct(said)


def amounts_of(amounts: Sequence[str], names: Sequence[str]) -> list[str]:
    """Every way to say an amount of something; a name with {} says where the amount stands, others follow it."""
    return distinct((name if "{}" in name else "{}" + name).format(amount) for name in names for amount in amounts)


def apply_rules(text: str, rules: Sequence[Rule], words: _WORDS) -> list[Slot]:
    """Slots of a text: the rules take their stretches in order of the list, the rest are words as written."""
    pieces: list[str | list[Slot]] = [text]
    for rule in rules:
        pieces = [part for piece in pieces for part in _split(piece, rule, words)]
    slots: list[Slot] = []
    for piece in pieces:
        slots.extend(piece if isinstance(piece, list) else (Slot(word, (Reading((word,)),)) for word in words(piece)))
    return slots


def _split(piece: str | list[Slot], rule: Rule, words: _WORDS) -> list[str | list[Slot]]:
    if isinstance(piece, list):
        return [piece]
    parts: list[str | list[Slot]] = []
    done = 0
    for match in rule.pattern.finditer(piece):
        slots = [
            Slot(match.group().strip(), tuple(Reading(said, rule.name) for said in _distinct_words(readings, words)))
            for readings in rule.read(match)
        ]
        parts += [piece[done : match.start()], [slot for slot in slots if slot.readings]]
        done = match.end()
    return [*parts, piece[done:]] if parts else [piece]


def _distinct_words(readings: Sequence[str], words: _WORDS) -> list[tuple[str, ...]]:
    """Readings as words, each once."""
    return list(dict.fromkeys(words(reading) for reading in readings))


def range_rule(words: Sequence[str], *, units: Iterable[str], signs: Iterable[str]) -> Rule:
    """The dash from one amount to another where a sign or a unit stands between it and a number: 10%-20%, $5–$10, 9:00-17:00.

    It goes before what reads signs, times, money and units, which would leave the dash alone.
    """
    money = "|".join(map(re.escape, signs))
    before = [rf"(?<=\d{space}{re.escape(unit)})" for unit in [*units, "%", "°"] for space in ("", " ")]
    before += [rf"(?<=\d{space}{half})" for half in ("[ap]m", r"[ap]\.m\.") for space in ("", " ")]
    before += [r"(?<=:\d\d)", r"(?<=\d[\u4e00-\u9fff])", r"(?<=\d[\uac00-\ud7a3])"]
    before += [rf"(?<={re.escape(sign)})" for sign in signs]
    pattern = rf"(?:{'|'.join(before)})\s?[-–—~]\s?(?=(?:{money})?\d)|(?<=\d)\s?[-–—~]\s?(?=(?:{money})\d)"
    return Rule("range", re.compile(pattern, re.IGNORECASE), lambda match: [list(words)])


def symbol_rule(names: Mapping[str, Sequence[str]]) -> Rule:
    """Single characters that are read as words, or as nothing."""
    pattern = re.compile("[" + re.escape("".join(names)) + "]")
    return Rule("symbol", pattern, lambda match: [list(names[match.group()])])


def unit_pattern(units: Iterable[str]) -> str:
    """A pattern for units, the longest first. Those of one letter keep their case: 5 g is a weight, 5G is not."""
    longest_first = sorted(units, key=len, reverse=True)
    return "|".join(re.escape(unit) if len(unit) > 1 else f"(?-i:{re.escape(unit)})" for unit in longest_first)


_TOP_LEVEL = "com|org|net|edu|gov|io|ai|cn|de|fr|es|uk|jp|kr|eu|info|co|tv|me|app|dev"
ADDRESS = re.compile(
    rf"(?:https?://|www\.)[\w.~/?#@!&=+%:-]*[\w/]|[\w.+-]+@[\w-]+(?:\.[\w-]+)+|\b[\w-]+(?:\.[\w-]+)*\.(?:{_TOP_LEVEL})\b(?:/[\w./?#&=%-]*[\w/])?",
    re.IGNORECASE | re.ASCII,
)


def web_rule(names: Mapping[str, Sequence[str]], number: Callable[[str], Sequence[str]]) -> Rule:
    """Addresses of pages and mailboxes, part by part; the scheme may stay unsaid. `names` says their punctuation."""

    def read(match: re.Match[str]) -> list[Sequence[str]]:
        slots: list[Sequence[str]] = []
        address = match.group()
        if scheme := re.match(r"(https?)://", address, re.IGNORECASE):
            colon, slash = names[":"][0], names["/"][0]
            slots.append(["", f"{scheme[1]} {colon} {slash} {slash}"])
            address = address[scheme.end() :]
        for part in re.findall(r"\d+|[^\W\d_]+|.", address.rstrip("/")):
            if part.isdigit():
                slots.append(list(number(part)))
            else:
                slots.append(list(names.get(part, [part])))
        return slots

    return Rule("address", ADDRESS, read)
