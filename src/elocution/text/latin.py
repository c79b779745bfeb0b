"""Rules for languages of Latin script that write a decimal comma, from one table of words per language."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from elocution.text.rules import Rule, distinct, one, products, range_rule, symbol_rule, web_rule

__all__ = ["Vocabulary", "rules_of"]

_MANY = 512  # ways to say a date or a time, of which products keeps fewer by itself


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Words of one language. `integer` and `ordinal` give ways to say a run of digits, the usual one first.

    `part` names what a denominator divides into, one and many. `halves`: a fraction -> what it is after a whole number.
    `clock` gives further ways to say an hour and a minute, such as quarters. `hours`: what stands between the two.
    `currencies`: sign or code -> (one, many, one small coin, many). `versus`: what stands between the numbers of a score.
    `grouping` is the pattern of a thousands separator, `ordinal_mark` that of what makes a number an ordinal.
    """

    integer: Callable[[str], tuple[str, ...]]
    ordinal: Callable[[str], tuple[str, ...]]
    part: Callable[[str], Sequence[str]]
    clock: Callable[[int, int], Sequence[str]]
    halves: Mapping[str, Sequence[str]]
    grouping: str
    ordinal_mark: str
    comma: Sequence[str]
    point: Sequence[str]
    months: Sequence[str]
    of: str
    currencies: Mapping[str, tuple[str, str, str, str]]
    coin_joiner: Sequence[str]
    hours: Sequence[str]
    minutes: Sequence[str]
    seconds: Sequence[str]
    hour_mark: str
    versus: Sequence[str]
    range_words: Sequence[str]
    minus: str
    power: Sequence[tuple[str, ...]]
    symbols: Mapping[str, Sequence[str]]
    units: Mapping[str, Sequence[str]]
    web: Mapping[str, Sequence[str]]
    abbreviations: Mapping[str, Sequence[str]]


def rules_of(words: Vocabulary) -> tuple[Rule, ...]:
    """The rules of a language, in the order in which they take their stretches of text."""
    read = _Reader(words)
    number, mark = read.number, words.hour_mark
    signs, units, short = map(_alternatives, (words.currencies, words.units, words.abbreviations))
    raised = _alternatives(unit for unit in words.units if "^" in unit)
    months = _alternatives(words.months)
    hour, minute = r"\b(?P<hour>[01]?\d|2[0-4])", r"(?P<minute>[0-5]\d)"
    return (
        web_rule(words.web, words.integer),
        range_rule(words.range_words, units=[*words.units, "h", "Uhr"], signs=words.currencies),
        _rule("unit", rf"(?P<amount>{number})\s?(?P<unit>{raised})(?!\d)", read.unit, flags=re.NOFLAG),
        _rule("power", r"\^(\d{1,3})(?!\d)", read.power),
        _rule("sign", rf"(?<![\w.])-(?=(?:{signs})?\s?\d)", lambda match: [[words.minus]]),
        _rule("telephone", _TELEPHONE, read.telephone),
        _rule(
            "money",
            rf"(?<!\w)(?P<before>{signs})\s?(?P<amount>{number})|(?P<amount2>{number})\s?(?P<after>{signs})(?![^\W\d_])",
            read.money,
        ),
        _rule("date", r"\b(\d{4})-(\d{2})-(\d{2})\b", read.iso_date),
        _rule("date", r"(?<![\d./])([0-3]?\d)([./])([01]?\d)\2(\d{4}|\d{2})(?!\d|[./]\d)", read.date),
        _rule("date", rf"\b([0-3]?\d)(?:\.|er)?(?=\s+(?:de\s+)?(?:{months})\b)", read.day_of_month),
        _rule("date", r"(?<![\d./,])([0-3]?\d)\.([01]?\d)\.(?![\d%])", read.day_and_month),
        _rule("time", rf"{hour}:{minute}(?::(?P<second>[0-5]\d))?(?:\s?(?:{mark})\b)?(?!\d)", read.clock),
        _rule(
            "time",
            rf"{hour}(?:\s?(?:{mark})\s?{minute}|\.{minute.replace('minute', 'minute2')}\s?(?:{mark}))\b(?!\s?%)",
            read.clock,
        ),
        _rule("time", rf"{hour}\s?(?:{mark})\b", read.clock),
        _rule("range", r"(?<=\d)\s?[-–—]\s?(?=\d)", lambda match: [list(words.range_words)]),
        _rule("score", r"(?<=\d):(?=\d)", lambda match: [list(words.versus)]),
        _rule("fraction", r"(?<![\d/.,])(\d+) (1/2|1/4|3/4)(?![\d/])", read.mixed),
        _rule("ordinal", rf"(?<![\d,.])(\d{{1,6}})(?:{words.ordinal_mark})", read.ordinal),
        _rule("unit", rf"(?P<amount>{number})\s?(?P<unit>{units})(?![^\W\d_])", read.unit, flags=re.NOFLAG),
        _rule("fraction", r"(?<![\d/])(\d{1,3})\s?/\s?([1-9]\d{0,2})(?![\d/])", read.fraction),
        _rule("number", number, lambda match: [read.say(match.group())]),
        _rule(
            "abbreviation",
            rf"(?<!\w)({short})(?!\w)",
            lambda match: [[*words.abbreviations[match[1].lower()], match[1]]],
        ),
        symbol_rule(words.symbols),
    )


# Four groups or more, of which one of the later ones has two digits: thousands have three.
_TELEPHONE = r"(?<![\d.,])(?=[\d .-]*[ .-]\d{2}(?!\d))\d{2,4}(?:[ .-]\d{2,3}){3,5}(?![\d,]|\.\d)"


class _Reader:
    """How the matches of the rules are read in one language."""

    def __init__(self, words: Vocabulary) -> None:
        self._words = words
        # Groups that go on with fewer than three digits are no thousands.
        self.number = rf"\d{{1,3}}(?:{words.grouping}\d{{3}})+(?!\d|{words.grouping}\d)(?:,\d+)?|\d+(?:[.,]\d+)?"
        self._grouped = re.compile(rf"\d{{1,3}}(?:{words.grouping}\d{{3}})+(?:,\d+)?")

    @cached_property
    def _currencies(self) -> dict[str, tuple[str, str, str, str]]:
        return {sign.upper(): names for sign, names in self._words.currencies.items()}

    def say(self, text: str) -> list[str]:
        """Ways to say an integer or a decimal."""
        words, mark = self._words, self._words.comma
        if self._grouped.fullmatch(text):
            text = re.sub(words.grouping, "", text)
        elif "." in text:
            mark, text = words.point, text.replace(".", ",")
        whole, _, fraction = text.partition(",")
        if not fraction:
            return list(words.integer(whole))
        by_digit = " ".join(words.integer(digit)[0] for digit in fraction)
        return products(words.integer(whole)[:4], mark, distinct([by_digit, *words.integer(fraction)[:3]]))

    def _dated(self, day: str, month: str, year: str) -> list[list[str]]:
        words = self._words
        if not 1 <= int(month) <= 12 or not 1 <= int(day) <= 31:
            return one(products(words.integer(day)[:2], words.integer(month)[:2], words.integer(year)[:3]))
        day, month = str(int(day)), str(int(month))
        days = [*words.ordinal(day), *words.integer(day)]
        middles = [words.months[int(month) - 1], *words.ordinal(month), *words.integer(month)[:2]]
        return [distinct(days), ["", words.of], distinct(middles), ["", words.of], list(words.integer(year)[:4])]

    def date(self, match: re.Match[str]) -> list[list[str]]:
        day, _, month, year = match.groups()
        dated = self._dated(day, month, year)
        if len(year) == 4:
            return dated
        plain = products(*(list(self._words.integer(part)[:2]) for part in (day, month, year)))
        return one([*products(*dated, limit=_MANY), *plain])  # may be a version or a number of another kind

    def iso_date(self, match: re.Match[str]) -> list[list[str]]:
        year, month, day = match.groups()
        plain = products(*(self._words.integer(part)[:2] for part in (year, month, day)))
        return one([*products(*self._dated(day, month, year), limit=_MANY), *plain])

    def day_and_month(self, match: re.Match[str]) -> list[list[str]]:
        """A day without its year; it may be a decimal at the end of a sentence."""
        words, (day, month) = self._words, match.groups()
        plain = self.say(f"{day}.{month}")
        if not 1 <= int(month) <= 12 or not 1 <= int(day) <= 31:
            return one(plain)
        months = [words.months[int(month) - 1], *words.ordinal(str(int(month)))]
        return one([*plain, *products(words.ordinal(str(int(day))), ["", words.of], months, limit=_MANY)])

    def day_of_month(self, match: re.Match[str]) -> list[list[str]]:
        return [distinct([*self._words.ordinal(match[1]), *self._words.integer(match[1])])]

    def clock(self, match: re.Match[str]) -> list[list[str]]:
        words, found = self._words, match.groupdict()
        hour, minute = (
            words.integer(match["hour"].lstrip("0") or "0")[:4],
            found.get("minute") or found.get("minute2") or "",
        )
        if found.get("second"):
            minutes, seconds = (
                products(words.integer(str(int(part)))[:2], ["", *names])
                for part, names in ((minute, words.minutes), (found["second"], words.seconds))
            )
            return [list(hour), [*words.hours, ""], minutes, ["", *words.coin_joiner], seconds]
        further = words.clock(int(match["hour"]), int(minute or 0))
        if not minute or int(minute) == 0:
            return one([*products(hour, [*words.hours, ""]), *further])
        said = distinct([*words.integer(str(int(minute)))[:3], *words.integer(minute)[:3]])
        return one([*products(hour, [*words.hours, ""], said, ["", *words.minutes], limit=_MANY), *further])

    def money(self, match: re.Match[str]) -> list[list[str]]:
        words = self._words
        sign = (match["before"] or match["after"]).upper()
        amount = match["amount"] or match["amount2"]
        single, many, coin, coins = self._currencies[sign]
        whole, _, fraction = amount.replace(",", ".").rpartition(".")
        spelled = [sign] if sign.isalpha() else []
        if not whole or len(fraction) != 2:
            return [self.say(amount), distinct([single if amount == "1" else many, single, many, *spelled])]
        whole = re.sub(r"\D", "", whole)
        small = words.integer(str(int(fraction)))
        names = distinct([single if whole == "1" else many, many, single, *spelled])
        tails = products(["", *words.coin_joiner], small[:3], ["", coins, coin]) if int(fraction) else [""]
        direct = products(self.say(f"{whole},{fraction}")[:8], names)
        unnamed = products(words.integer(whole)[:3], words.coin_joiner, small[:1]) if int(fraction) else []
        return one([*products(words.integer(whole)[:3], names, tails, limit=_MANY), *direct, *unnamed])

    def unit(self, match: re.Match[str]) -> list[list[str]]:
        return [self.say(match["amount"]), [*self._words.units[match["unit"]], match["unit"]]]

    def fraction(self, match: re.Match[str]) -> list[list[str]]:
        words = self._words
        top, bottom = words.integer(match[1])[:4], words.integer(match[2])[:2]
        parts = list(words.part(match[2]))
        said = [*products(top, parts), *(parts[:1] if match[1] == "1" else [])]
        return one([*said, *products(top, [*words.symbols["/"], *words.symbols["÷"]], bottom)])

    def mixed(self, match: re.Match[str]) -> list[list[str]]:
        return one(products(self._words.integer(match[1]), self._words.halves[match[2]]))

    def ordinal(self, match: re.Match[str]) -> list[list[str]]:
        return [distinct([*self._words.ordinal(match[1]), *self._words.integer(match[1])])]

    def power(self, match: re.Match[str]) -> list[list[str]]:
        names, exponent = self._words.power, int(match[1])
        special = names[exponent] if 2 <= exponent < len(names) else ()
        return one([*special, *products(names[0], self._words.integer(match[1]))])

    def telephone(self, match: re.Match[str]) -> list[list[str]]:
        """Group by group, each as a number or digit by digit."""
        words = self._words
        return [
            distinct([*words.integer(group), " ".join(words.integer(digit)[0] for digit in group)])
            for group in re.findall(r"\d+", match.group())
        ]


def _alternatives(names: Iterable[str]) -> str:
    """A pattern for any of the names, the longest first."""
    return "|".join(map(re.escape, sorted(names, key=len, reverse=True)))


def _rule(
    name: str,
    pattern: str,
    read: Callable[[re.Match[str]], Sequence[Sequence[str]]],
    flags: re.RegexFlag = re.IGNORECASE,
) -> Rule:
    return Rule(name, re.compile(pattern, flags), read)
