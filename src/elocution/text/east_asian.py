"""What Japanese and Korean share: digits one by one, and the rules by which numbers, dates, money and units are read."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from elocution.text.rules import (
    NUMBER,
    Rule,
    amounts_of,
    distinct,
    one,
    products,
    range_rule,
    symbol_rule,
    unit_pattern,
    web_rule,
)

__all__ = ["Wording"]


@dataclass(frozen=True, slots=True)
class Wording:
    """A language's own words. `integer` gives the readings of a run of digits; `hour` those of an hour, `power` reads a match.

    `digits` are the names of 0 to 9, `point` that of a decimal point, `of` what stands between denominator and numerator.
    `calendar` has what follows year, month and day, `time` what follows hour, minute, second and an hour and a half.
    `months` are those that are not said as their number. A unit with {} says where its amount stands. `currencies`: sign ->
    names, and `coins` what a hundredth of it is called, where it is said.
    """

    integer: Callable[[str], tuple[str, ...]]
    hour: Callable[[int], Sequence[str]]
    power: Callable[[re.Match[str]], list[list[str]]]
    digits: str
    point: str
    of: str
    calendar: tuple[str, str, str]
    time: tuple[str, str, str, str]
    months: Mapping[int, str]
    minus: Sequence[str]
    between: Sequence[str]
    versus: Sequence[str]
    currencies: Mapping[str, Sequence[str]]
    coins: Mapping[str, str]
    units: Mapping[str, Sequence[str]]
    symbols: Mapping[str, Sequence[str]]
    web: Mapping[str, Sequence[str]]

    def rules(self) -> tuple[Rule, ...]:
        """In the order in which they take their stretches of a text."""
        _, month, _ = self.calendar
        hour, minute, second, _ = self.time
        signs = "|".join(map(re.escape, sorted(self.currencies, key=len, reverse=True)))
        raised = unit_pattern(unit for unit in self.units if "^" in unit)
        return (
            web_rule(self.web, self.integer),
            range_rule(self.between, units=self.units, signs=self.currencies),
            Rule("unit", re.compile(rf"({NUMBER})\s?({raised})(?!\d)", re.IGNORECASE), self._unit),
            Rule("power", re.compile(r"\^(\d{1,3})(?!\d)"), self.power),
            Rule("sign", re.compile(rf"(?<![\w.])-(?=(?:{signs})?\d)"), lambda match: [self.minus]),
            Rule("money", re.compile(rf"(?<![A-Za-z])({signs})\s?({NUMBER})"), self._money),
            Rule("date", re.compile(r"(?<![\d./-])(\d{4})([-/.])(\d{1,2})\2(\d{1,2})(?!\d|[-/.]\d)"), self._date),
            Rule("date", re.compile(rf"(?<!\d)(\d{{1,2}})(?=\s?{month})"), self._month),
            Rule(
                "time",
                re.compile(r"(?<!\d)(?P<hour>[01]?\d|2[0-4]):(?P<minute>[0-5]\d)(?::(?P<second>[0-5]\d))?(?![\d:])"),
                self._clock,
            ),
            Rule(
                "time",
                re.compile(
                    rf"(?<!\d)(?P<hour>[01]?\d|2[0-4])\s?{hour}\s?(?P<minute>[0-5]?\d)\s?{minute}"
                    rf"(?:\s?(?P<second>[0-5]?\d)\s?{second})?"
                ),
                self._clock,
            ),
            Rule("range", re.compile(r"(?<=\d)\s?[-–—~]\s?(?=\d)"), lambda match: [self.between]),
            Rule("score", re.compile(r"(?<=\d):(?=\d)"), lambda match: [self.versus]),
            Rule(
                "unit",
                re.compile(rf"({NUMBER})\s?({unit_pattern(self.units)})(?![a-zA-Z])", re.IGNORECASE),
                self._unit,
            ),
            Rule("fraction", re.compile(r"(?<![\d/])(\d{1,3})/([1-9]\d{0,2})(?![\d/])"), self._fraction),
            Rule("number", re.compile(NUMBER), lambda match: [self._number(match.group())]),
            symbol_rule(self.symbols),
        )

    def _number(self, text: str) -> list[str]:
        whole, _, fraction = text.replace(",", "").partition(".")
        if not fraction:
            return list(self.integer(whole))
        return products(self.integer(whole)[:4], [self.point], ["".join(self.digits[int(digit)] for digit in fraction)])

    def _unit(self, match: re.Match[str]) -> list[list[str]]:
        return one(amounts_of(self._number(match[1]), self.units[match[2].lower()]))

    def _money(self, match: re.Match[str]) -> list[list[str]]:
        names, coin = self.currencies[match[1]], self.coins.get(match[1])
        said = products(self._number(match[2]), names)
        whole, _, fraction = match[2].replace(",", "").partition(".")
        if coin and len(fraction) == 2:
            said += products(self.integer(whole), names, self.integer(str(int(fraction)))[:1], [coin])
        return one(said)

    def _days(self, month: str, day: str) -> list[str]:
        """A day of the year, or nothing where there is no such day."""
        if not 1 <= int(month) <= 12 or not 1 <= int(day) <= 31:
            return []
        months = [self.months.get(int(month), ""), self.integer(str(int(month)))[0]]
        marks = self.calendar
        return products([m for m in months if m], [marks[1]], self.integer(str(int(day)))[:1], [marks[2]])

    def _date(self, match: re.Match[str]) -> list[list[str]]:
        year, _, month, day = match.groups()
        plain = products(*(self.integer(part)[:2] for part in (year, month, day)))
        return one([*products(self.integer(year), [self.calendar[0]], self._days(month, day)), *plain])

    def _month(self, match: re.Match[str]) -> list[list[str]]:
        own = self.months.get(int(match[1]))
        return one([*([own] if own else []), *self.integer(match[1])])

    def _clock(self, match: re.Match[str]) -> list[list[str]]:
        hour_mark, minute_mark, second_mark, half = self.time
        minute, second = int(match["minute"]), match["second"]
        tails = [f"{hour_mark}{said}{minute_mark}" for said in self.integer(str(minute))[:2]] if minute else [hour_mark]
        tails += [half] if minute == 30 and not second else []
        if second:
            tails = [f"{tail}{self.integer(str(int(second)))[0]}{second_mark}" for tail in tails]
        return [list(self.hour(int(match["hour"]))), tails]

    def _fraction(self, match: re.Match[str]) -> list[list[str]]:
        said = [f"{self.integer(match[2])[0]}{self.of}{self.integer(match[1])[0]}"]
        return [distinct([*said, *self._days(match[1], match[2])])]
