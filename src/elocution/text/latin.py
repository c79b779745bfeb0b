"""Rules for languages of Latin script that write a decimal comma, from one table of words per language."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from elocution.text.rules import Rule, distinct, one, products, symbol_rule, web_rule

__all__ = ["Vocabulary", "rules_of"]


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Words of one language. `integer` and `ordinal` give ways to say a run of digits, the usual one first.

    `currencies`: sign -> (one, many, one small coin, many). `hours`: what stands between hour and minute.
    `grouping` is the pattern of a thousands separator, `ordinal_mark` that of what makes a number an ordinal.
    """

    integer: Callable[[str], tuple[str, ...]]
    ordinal: Callable[[str], tuple[str, ...]]
    grouping: str
    ordinal_mark: str
    comma: Sequence[str]
    point: Sequence[str]
    months: Sequence[str]
    of: str
    currencies: Mapping[str, tuple[str, str, str, str]]
    coin_joiner: Sequence[str]
    hours: Sequence[str]
    hour_mark: str
    range_words: Sequence[str]
    minus: str
    power: Sequence[tuple[str, ...]]
    symbols: Mapping[str, Sequence[str]]
    units: Mapping[str, Sequence[str]]
    web: Mapping[str, Sequence[str]]
    abbreviations: Mapping[str, Sequence[str]]


def rules_of(words: Vocabulary) -> tuple[Rule, ...]:
    """The rules of a language, in the order in which they take their stretches of text."""
    number = rf"\d{{1,3}}(?:{words.grouping}\d{{3}})+(?!\d)(?:,\d+)?|\d+(?:[.,]\d+)?"
    signs = re.escape("".join(words.currencies))
    months = "|".join(sorted(words.months, key=len, reverse=True))
    units = "|".join(map(re.escape, sorted(words.units, key=len, reverse=True)))
    short = "|".join(sorted(map(re.escape, words.abbreviations), key=len, reverse=True))
    say = _number_reader(words)

    def date(match: re.Match[str]) -> list[list[str]]:
        day, month, year = match.groups()
        if not 1 <= int(month) <= 12 or not 1 <= int(day) <= 31:
            return one(products(words.integer(day)[:2], words.integer(month)[:2], words.integer(year)[:3]))
        days = [*words.ordinal(day), *words.integer(day)]
        name, years = words.months[int(month) - 1], words.integer(year)[:3]
        middles = [name, *words.ordinal(month), *words.integer(month)[:2]]
        return [days, ["", words.of], distinct(middles), ["", words.of], list(years)]

    def day_of_month(match: re.Match[str]) -> list[list[str]]:
        return [distinct([*words.ordinal(match[1]), *words.integer(match[1])])]

    def clock(match: re.Match[str]) -> list[list[str]]:
        hour, minute = words.integer(match["hour"].lstrip("0") or "0"), match["minute"]
        if not minute or int(minute) == 0:
            return [list(hour), list(words.hours)]
        said = [*words.integer(str(int(minute))), *words.integer(minute)]
        return [list(hour), [*words.hours, ""], distinct(said)]

    def money(match: re.Match[str]) -> list[list[str]]:
        sign = match["before"] or match["after"]
        amount = match["amount"] or match["amount2"]
        single, many, coin, coins = words.currencies[sign]
        whole, _, fraction = amount.replace(",", ".").rpartition(".")
        if not whole or len(fraction) != 2:
            return [say(amount), distinct([single if amount == "1" else many, single, many])]
        whole = re.sub(r"\D", "", whole)
        small = words.integer(str(int(fraction)))
        names = distinct([single if whole == "1" else many, many, single])
        tails = products(["", *words.coin_joiner], small[:3], ["", coins, coin]) if int(fraction) else [""]
        direct = products(say(f"{whole},{fraction}")[:8], names)
        return one([*products(words.integer(whole)[:3], names, tails), *direct])

    def unit(match: re.Match[str]) -> list[list[str]]:
        return [say(match["amount"]), list(words.units[match["unit"]])]

    def fraction(match: re.Match[str]) -> list[list[str]]:
        top, bottom = words.integer(match[1])[:4], words.integer(match[2])[:2]
        between = [*words.symbols["/"], *words.symbols["÷"]]
        return one([*products(top, between, bottom), *products(top, words.ordinal(match[2]))])

    def power(match: re.Match[str]) -> list[list[str]]:
        exponent = int(match[1])
        return one(
            words.power[exponent]
            if 2 <= exponent < len(words.power)
            else products(words.power[0], words.integer(match[1]))
        )

    rules = [
        web_rule(words.web, words.integer),
        _rule("power", r"\^(\d)(?!\d)", power),
        _rule("sign", r"(?<![\w.])-(?=\d)", lambda match: [[words.minus]]),
        _rule(
            "money",
            rf"(?P<before>[{signs}])\s?(?P<amount>{number})|(?P<amount2>{number})\s?(?P<after>[{signs}])",
            money,
        ),
        _rule("date", r"\b([0-3]?\d)[./]([01]?\d)[./](\d{4})\b", date),
        _rule("date", rf"\b([0-3]?\d)(?:\.|er)?(?=\s+(?:de\s+)?(?:{months})\b)", day_of_month),
        _rule("time", rf"\b(?P<hour>[01]?\d|2[0-4]):(?P<minute>[0-5]\d)(?:\s?(?:{words.hour_mark})\b)?(?!\d)", clock),
        _rule("time", rf"\b(?P<hour>[01]?\d|2[0-4])\s?(?:{words.hour_mark})(?P<minute>[0-5]\d)?\b", clock),
        _rule("range", r"(?<=\d)\s?[-–—]\s?(?=\d)", lambda match: [list(words.range_words)]),
        _rule(
            "ordinal",
            rf"(?<![\d,.])(\d{{1,6}})(?:{words.ordinal_mark})",
            lambda match: [distinct([*words.ordinal(match[1]), *words.integer(match[1])])],
        ),
        _rule("unit", rf"(?P<amount>{number})\s?(?P<unit>{units})(?![^\W\d_])", unit, flags=re.NOFLAG),
        _rule("fraction", r"(?<![\d/])(\d{1,3})\s?/\s?([1-9]\d{0,2})(?![\d/])", fraction),
        _rule("number", number, lambda match: [say(match.group())]),
        _rule("abbreviation", rf"(?<!\w)({short})(?!\w)", lambda match: [list(words.abbreviations[match[1].lower()])]),
        symbol_rule(words.symbols),
    ]
    return tuple(rules)


def _number_reader(words: Vocabulary) -> Callable[[str], list[str]]:
    grouped = re.compile(rf"\d{{1,3}}(?:{words.grouping}\d{{3}})+(?:,\d+)?")

    def say(text: str) -> list[str]:
        mark = words.comma
        if grouped.fullmatch(text):
            text = re.sub(words.grouping, "", text)
        elif "." in text:
            mark, text = words.point, text.replace(".", ",")
        whole, _, fraction = text.partition(",")
        if not fraction:
            return list(words.integer(whole))
        by_digit = " ".join(words.integer(digit)[0] for digit in fraction)
        return products(words.integer(whole)[:4], mark, distinct([by_digit, *words.integer(fraction)[:3]]))

    return say


def _rule(
    name: str,
    pattern: str,
    read: Callable[[re.Match[str]], Sequence[Sequence[str]]],
    flags: re.RegexFlag = re.IGNORECASE,
) -> Rule:
    return Rule(name, re.compile(pattern, flags), read)
