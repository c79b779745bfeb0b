"""What Japanese and Korean share: digits one by one, and the rules by which numbers, money, units and symbols are read."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from elocution.text.rules import NUMBER, Rule, products, symbol_rule, unit_pattern, web_rule

__all__ = ["Wording"]


@dataclass(frozen=True, slots=True)
class Wording:
    """A language's own words. `integer` gives the readings of a run of digits; `clock` and `power` read a match.

    `digits` are the names of 0 to 9, `point` that of a decimal point, `of` what stands between denominator and numerator.
    """

    integer: Callable[[str], tuple[str, ...]]
    clock: Callable[[re.Match[str]], list[list[str]]]
    power: Callable[[re.Match[str]], list[list[str]]]
    digits: str
    point: str
    of: str
    minus: Sequence[str]
    between: Sequence[str]
    currencies: Mapping[str, Sequence[str]]
    units: Mapping[str, Sequence[str]]
    symbols: Mapping[str, Sequence[str]]
    web: Mapping[str, Sequence[str]]

    def rules(self) -> tuple[Rule, ...]:
        """In the order in which they take their stretches of a text."""
        return (
            web_rule(self.web, self.integer),
            Rule("power", re.compile(r"\^(\d)(?!\d)"), self.power),
            Rule("sign", re.compile(r"(?<![\w.])-(?=[$¥€£₩]?\d)"), lambda match: [self.minus]),
            Rule(
                "money",
                re.compile(rf"([{re.escape(''.join(self.currencies))}])\s?({NUMBER})"),
                lambda match: [self._number(match[2]), self.currencies[match[1]]],
            ),
            Rule("time", re.compile(r"(?<!\d)([01]?\d|2[0-4]):([0-5]\d)(?!\d)"), self.clock),
            Rule("range", re.compile(r"(?<=\d)\s?[-–—~]\s?(?=\d)"), lambda match: [self.between]),
            Rule(
                "unit",
                re.compile(rf"({NUMBER})\s?({unit_pattern(self.units)})(?![a-zA-Z])", re.IGNORECASE),
                lambda match: [self._number(match[1]), self.units[match[2].lower()]],
            ),
            Rule("fraction", re.compile(r"(?<![\d/])(\d{1,3})/([1-9]\d{0,2})(?![\d/])"), self._fraction),
            Rule("number", re.compile(NUMBER), lambda match: [self._number(match.group())]),
            symbol_rule(self.symbols),
        )

    def _number(self, text: str) -> list[str]:
        whole, _, fraction = text.replace(",", "").partition(".")
        if not fraction:
            return list(self.integer(whole))
        return products(self.integer(whole)[:2], [self.point], ["".join(self.digits[int(digit)] for digit in fraction)])

    def _fraction(self, match: re.Match[str]) -> list[list[str]]:
        return [[f"{self.integer(match[2])[0]}{self.of}{self.integer(match[1])[0]}"]]
