"""How English reads numbers, dates, times, money, units and symbols."""

import re
from functools import cache

from num2words import num2words

from elocution.text.english_words import ABBREVIATIONS, CURRENCIES, SCALES, SINGULAR, SYMBOLS, UNITS, WEB
from elocution.text.rules import Rule, distinct, one, products, range_rule, symbol_rule, unit_pattern, web_rule

__all__ = ["RULES", "integer_readings"]

_MONTHS = "january february march april may june july august september october november december".split()
_SHORT_MONTHS = {month[:3]: month for month in _MONTHS} | {"sept": "september"}
_MONTH = "(" + "|".join(sorted([*_MONTHS, *_SHORT_MONTHS], key=len, reverse=True)) + r")\b\.?"
_NUMBER = r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+"


def _spoken(number: int, to: str = "cardinal") -> str:
    return str(num2words(number, lang="en", to=to)).replace(",", "").replace("-", " ")


def _without_and(reading: str) -> str:
    return reading.replace(" and ", " ")


@cache
def integer_readings(digits: str) -> tuple[str, ...]:
    """Ways to say a run of digits, the usual one first: as a number, as a year, in pairs, digit by digit."""
    by_digit = [
        " ".join(_spoken(int(d)) for d in digits),
        " ".join("oh" if d == "0" else _spoken(int(d)) for d in digits),
    ]
    if digits.startswith("00") and len(digits) == 3:
        by_digit += [f"double {zero} {_spoken(int(digits))}" for zero in ("oh", "zero")]
    if len(digits) > 15 or (len(digits) > 1 and digits[0] == "0"):
        return tuple(distinct(by_digit))
    number = int(digits)
    said = [_without_and(_spoken(number)), _spoken(number)]
    said += [f"a {reading[4:]}" for reading in said if re.match(r"one (?:hundred|thousand|million|billion)", reading)]
    said += ["oh"] if number == 0 else []
    if len(digits) == 4:
        year = [_without_and(_spoken(number, "year")), _spoken(number, "year"), _pairs(digits)]
        said = year + said if 1100 <= number <= 2099 else said + year
        if number % 100 == 0 and number % 1000:
            said.append(f"{_spoken(number // 100)} hundred")
    if len(digits) == 3:
        said.append(f"{_spoken(number // 100)} {_two(digits[1:])}")
    return tuple(distinct(said + by_digit))


def _two(digits: str) -> str:
    """Two digits of a longer run: "oh five", "forty five", "hundred"."""
    if digits == "00":
        return "hundred"
    return f"oh {_spoken(int(digits))}" if digits[0] == "0" else _spoken(int(digits))


def _pairs(digits: str) -> str:
    return f"{_spoken(int(digits[:2]))} {_two(digits[2:])}"


def _number(text: str) -> list[str]:
    """Ways to say an integer or decimal with a point; a comma groups digits."""
    whole, _, fraction = text.replace(",", "").partition(".")
    if not fraction:
        # A comma in the number rules out a year.
        return [r for r in integer_readings(whole) if "," not in text or _is_number(whole, r)]
    digits = [
        " ".join(_spoken(int(d)) for d in fraction),
        " ".join("oh" if d == "0" else _spoken(int(d)) for d in fraction),
    ]
    grouped = [_spoken(int(fraction))] if len(fraction) == 2 and fraction[0] != "0" else []
    if int(whole or 0) == 0:
        heads = ["", "zero", "oh"] if not whole else ["zero", "", "oh"]
    else:
        heads = [r for r in integer_readings(whole) if _is_number(whole, r)] or list(integer_readings(whole))
    return products(heads, ["point"], digits + grouped)


def _is_number(digits: str, reading: str) -> bool:
    """Whether a reading says the value, rather than a year, pairs or digits."""
    value = _spoken(int(digits))
    return reading in (value, _without_and(value)) or reading.startswith("a ") or reading.endswith(" hundred")


def _ordinal(match: re.Match[str]) -> list[list[str]]:
    said = _spoken(int(match[1].replace(",", "")), "ordinal")
    short = ["hundred" + said[11:]] if said.startswith("one hundred ") else []
    return one([_without_and(said), said, *short, *map(_without_and, short)])


def _decade(match: re.Match[str]) -> list[list[str]]:
    digits = match[1]
    if digits.endswith("00"):
        head = _spoken(int(digits)) if digits[1:] == "000" else f"{_spoken(int(digits[:2]))} hundred"
        return one([head + "s"])
    tens = _spoken(int(digits[-2:]))[:-1] + "ies"
    if len(digits) == 2:
        return one([tens, f"nineteen {tens}"])
    century = _spoken(int(digits[:2]))
    return one([f"{century} {tens}", *([f"two thousand {tens}"] if digits[:2] == "20" else [])])


def _money(match: re.Match[str]) -> list[list[str]]:
    single, many, cent, cents = CURRENCIES[match["sign"].upper()]
    amount, scale = match["amount"].replace(",", ""), (match["scale"] or "").lower().rstrip(".")
    if scale:
        scaled = products(_scaled(amount), [SCALES.get(scale, scale)], ["", *_names_of(match["sign"], many, single)])
        return one([*scaled[1:], scaled[0]])
    whole, _, fraction = amount.partition(".")
    wholes = [r for r in integer_readings(whole or "0") if _is_number(whole or "0", r)]
    hundreds = _hundreds(whole)
    names = _names_of(match["sign"], single if whole == "1" else many)
    name = names[0]
    if not fraction or int(fraction) == 0:
        return one([*products(wholes, names), *products([*integer_readings(whole or "0"), *hundreds], names)])
    wholes += hundreds
    if len(fraction) != 2:
        return one(products(_number(amount)[:6], [many]))
    small = _spoken(int(fraction))
    coins = f"{small} {cent if int(fraction) == 1 else cents}"
    if int(whole or 0) == 0:
        return one([coins, f"zero {many} and {coins}", *products(_number(amount)[:4], [many])])
    return one(
        [
            *products(wholes, [name], ["and"], [coins]),
            *products(wholes, [name], [coins, small, f"and {small}"]),
            *products(wholes, [_two(fraction)]),
            *products(_number(amount)[:6], [many]),
        ]
    )


def _names_of(sign: str, *names: str) -> list[str]:
    """A currency's names, and its code as it is written; ¥ is the sign of two."""
    return distinct([*names, *(["yuan"] if sign == "¥" else []), *([sign] if sign.isalpha() else [])])


def _scaled(amount: str) -> list[str]:
    """Ways to say an amount before a scale: "one point five", "one and a half"."""
    whole, _, fraction = amount.partition(".")
    half = products(integer_readings(whole)[:2], ["and a half"]) if fraction == "5" and whole.strip("0") else []
    return [*_number(amount)[:6], *half]


def _with_scale(match: re.Match[str]) -> list[list[str]]:
    scale = match["scale"].lower()
    return [_scaled(match["amount"].replace(",", "")), distinct([SCALES.get(scale, scale), scale])]


def _hundreds(whole: str) -> list[str]:
    """1250 as "twelve hundred fifty"."""
    if len(whole) != 4 or whole[1] == "0":
        return []
    head, tail = f"{_spoken(int(whole[:2]))} hundred", int(whole[2:])
    return [f"{head} {_spoken(tail)}", f"{head} and {_spoken(tail)}"] if tail else [head]


def _clock(match: re.Match[str]) -> list[list[str]]:
    hour, minute = int(match["hour"]), int(match["minute"] or 0)
    said = _spoken(hour)
    half = (match["half"] or "").replace(".", "").replace(" ", "").lower()
    tails = [f"{half[0]} m", half] if half else [""]
    if match["second"]:
        return one(
            products(
                [f"{said} {_two(match['minute'])}"],
                ["", "and"],
                [_two(match["second"]), _spoken(int(match["second"])) + " seconds"],
                tails,
            )
        )
    if minute == 0:
        exact = [
            f"{said} o'clock",
            said,
            *([f"{said} hundred", f"{said} hundred hours"] if match["minute"] else []),
        ]
        noon = ["twelve noon", "noon"] if hour == 12 and half != "am" else []
        return one([*products([said, *exact], tails), *noon])
    ways = [f"{said} {_two(match['minute'])}", f"{_spoken(minute)} past {said}", f"{said} {_spoken(minute)}"]
    following = _spoken(hour % 12 + 1 if hour <= 12 else (hour + 1) % 24)
    if minute == 15:
        ways += [f"quarter past {said}", f"a quarter past {said}"]
    if minute == 30:
        ways.append(f"half past {said}")
    if minute == 45:
        ways += [f"quarter to {following}", f"a quarter to {following}"]
    if minute > 30:
        ways.append(f"{_spoken(60 - minute)} to {following}")
    return one(products(ways, tails))


def _day_readings(day: str) -> list[str]:
    return [_spoken(int(day), "ordinal"), _spoken(int(day)), f"the {_spoken(int(day), 'ordinal')}"]


def _month_first(match: re.Match[str]) -> list[list[str]]:
    month = _SHORT_MONTHS.get(match[1].lower(), match[1].lower())
    year = [list(integer_readings(match["year"]))] if match["year"] else []
    nth = _spoken(int(match["day"]), "ordinal")
    said = products([month], _day_readings(match["day"]))
    return [distinct([*said, f"the {nth} of {month}", f"{nth} of {month}", f"{nth} {month}"]), *year]


def _day_first(match: re.Match[str]) -> list[list[str]]:
    month = _SHORT_MONTHS.get(match[2].lower(), match[2].lower())
    said = products(_day_readings(match["day"]), ["", "of"], [month])
    return one([*said, *products([month], _day_readings(match["day"]))])


def _date(year: str, month: str, day: str) -> list[str]:
    """A date in digits, said with the month's name in either order."""
    if not 1 <= int(month) <= 12 or not 1 <= int(day) <= 31:
        return []
    name, days, years = _MONTHS[int(month) - 1], _day_readings(day), list(integer_readings(year))[:4]
    return [*products([name], days, years), *products(days, ["of", ""], [name], years)]


def _iso_date(match: re.Match[str]) -> list[list[str]]:
    year, month, day = match.groups()
    plain = products(integer_readings(year)[:4], integer_readings(month)[:4], integer_readings(day)[:4])
    return one([*_date(year, month, day), *plain])


def _slash_date(match: re.Match[str]) -> list[list[str]]:
    first, second, year = match.groups()
    plain = products(
        integer_readings(first)[:3],
        ["", "slash"],
        integer_readings(second)[:3],
        ["", "slash"],
        integer_readings(year)[:3],
    )
    return one([*_date(year, first, second), *_date(year, second, first), *plain])


def _fraction(match: re.Match[str]) -> list[list[str]]:
    top, bottom = int(match[1]), int(match[2])
    above, below = _spoken(top), _spoken(bottom)
    nth = _spoken(bottom, "ordinal").removeprefix("one ")
    part = {1: below, 2: "half", 4: "quarter"}.get(bottom, nth if bottom else below)
    many = {"half": "halves"}.get(part, part + "s")
    said = [
        f"{above} {part if top == 1 else many}",
        f"{above} over {below}",
        f"{above} slash {below}",
        f"{above} {below}",
    ]
    said += [f"{above} {_spoken(4, 'ordinal')}{'' if top == 1 else 's'}"] if bottom == 4 else []
    said += [f"a {part}", *(["half", "half a"] if bottom == 2 else [])] if top == 1 else []
    if top <= 12 and bottom <= 31:
        said += products([_MONTHS[top - 1]], _day_readings(match[2])) if top else []
    return one([*said, f"{above} of {below}", f"{above} out of {below}", f"{above} by {below}"])


def _mixed(match: re.Match[str]) -> list[list[str]]:
    halves = {"1/2": ["a half", "one half"], "1/4": ["a quarter", "one quarter"], "3/4": ["three quarters"]}
    return one(products(integer_readings(match[1])[:2], ["and"], halves[match[2]]))


def _unit(match: re.Match[str]) -> list[list[str]]:
    names = UNITS[match["unit"].lower()]
    if match["amount"] == "1":
        names = tuple(_one_of(name) for name in names)
    return [_number(match["amount"]), distinct([*names, *(_one_of(name) for name in names)])]


def _area(match: re.Match[str]) -> list[list[str]]:
    names = UNITS[match["unit"].lower()]
    before, after = ("square", "squared") if match["power"] == "2" else ("cubic", "cubed")
    return [_number(match["amount"]), [f"{before} {names[0]}", f"{names[0]} {after}"]]


def _feet_and_inches(match: re.Match[str]) -> list[list[str]]:
    inches = list(integer_readings(str(int(match[2])))[:1])
    return [list(integer_readings(match[1])[:1]), ["", "foot", "feet"], inches, ["", "inches", "inch"]]


def _one_of(name: str) -> str:
    head, _, tail = name.partition(" ")
    head = SINGULAR.get(head, head[:-1] if head.endswith("s") and len(head) > 2 else head)
    return f"{head} {tail}".strip()


def _power(match: re.Match[str]) -> list[list[str]]:
    exponent = int(match[1])
    special = {2: ["squared", "square"], 3: ["cubed"]}.get(exponent, [])
    said, nth = _spoken(exponent), _spoken(exponent, "ordinal")
    return one([*special, f"to the power of {said}", f"to the {nth}", f"to the {nth} power", f"to the {said}"])


def _digits_apart(match: re.Match[str]) -> list[list[str]]:
    """A number in groups, as a telephone's: each group digit by digit, or as the number it is."""
    slots: list[list[str]] = []
    for group in re.findall(r"\d+", match.group()):
        by_digit = " ".join(_spoken(int(d)) for d in group)
        slots.append(distinct([by_digit, *integer_readings(group)]))
    return [["", "plus"], *slots] if match.group().startswith("+") else slots


def _rule(name: str, pattern: str, read: object) -> Rule:
    return Rule(name, re.compile(pattern, re.IGNORECASE), read)  # type: ignore[arg-type]


_HALF = r"(?P<half>[ap]\.?\s?m\b\.?)"
_YEAR = r"(?:,?\s+(?P<year>\d{4})\b)?"
_RANGE = ["to", "", "minus", "through", "dash", "till", "until"]
RULES = (
    web_rule(WEB, integer_readings),
    range_rule(_RANGE, units=UNITS, signs=CURRENCIES),
    _rule("unit", rf"(?P<amount>{_NUMBER})[\s-]?(?P<unit>km|cm|mm|m|ft)\^(?P<power>[23])(?!\d)", _area),
    _rule("power", r"\^(\d{1,3})(?!\d)", _power),
    _rule("length", r"""(\d{1,2})'\s?(\d{1,2})(?:"|''|”)""", _feet_and_inches),
    _rule("sign", r"(?<![\w.])-(?=[$£€]?\.?\d)", lambda match: [["minus", "negative"]]),
    _rule(
        "money",
        rf"(?<![a-z])(?P<sign>{unit_pattern(CURRENCIES)})\s?(?P<amount>{_NUMBER})"
        r"(?:\s?(?P<scale>thousand|million|billion|trillion|bn|tn|[kmb])\b)?",
        _money,
    ),
    _rule("date", r"\b(\d{4})-(\d{2})-(\d{2})\b", _iso_date),
    _rule("date", r"\b(\d{1,2})/(\d{1,2})/(\d{4}|\d{2})\b", _slash_date),
    _rule("date", rf"\b{_MONTH}\s+(?:the\s+)?(?P<day>[0-3]?\d)(?:st|nd|rd|th)?\b(?!:){_YEAR}", _month_first),
    _rule("date", rf"\b(?P<day>[0-3]?\d)(?:st|nd|rd|th)?\s+(?:of\s+)?{_MONTH}", _day_first),
    _rule(
        "time", rf"\b(?P<hour>[01]?\d|2[0-4]):(?P<minute>[0-5]\d)(?::(?P<second>[0-5]\d))?(?:\s?{_HALF})?(?!\d)", _clock
    ),
    _rule("time", rf"\b(?P<hour>1[0-2]|0?[1-9])(?P<minute>)(?P<second>)\s?{_HALF}", _clock),
    _rule(
        "telephone",
        r"(?<![\d.])\+?(?:\d{1,3}[- ])?(?:\(\d{3}\)\s?|\d{3}[-. ])\d{3}[-. ]\d{4}(?!\d)|(?<![\d-])\d{3}-\d{4}(?![\d-])",
        _digits_apart,
    ),
    _rule("number", rf"(?P<amount>{_NUMBER})\s?(?P<scale>k|thousand|million|billion|trillion|bn)\b", _with_scale),
    _rule("fraction", r"\b(\d+)[ -](1/2|1/4|3/4)\b", _mixed),
    _rule(
        "range",
        r"(?<=\d)\s?[-–—]\s?(?=\d)",
        lambda match: [_RANGE],
    ),
    _rule("decade", r"\b(\d{3}0|[2-9]0)['’]?s\b", _decade),
    _rule("ordinal", r"\b(\d{1,3}(?:,\d{3})+|\d{1,15})(?:st|nd|rd|th)\b", _ordinal),
    _rule("unit", rf"(?P<amount>{_NUMBER})[\s-]?(?P<unit>{unit_pattern(UNITS)})(?![^\W\d_])", _unit),
    _rule("fraction", r"(?<![\d/])(\d{1,3})\s?/\s?([1-9]\d{0,2})(?![\d/])", _fraction),
    _rule("minus", r"(?<=\w)\s-\s(?=[\w(])", lambda match: [["", "minus"]]),
    _rule("by", r"(?<=\d)x(?=\d)", lambda match: [["by", "x", "times"]]),
    _rule("score", r"(?<=\d):(?=\d)", lambda match: [["to", ""]]),
    _rule("number", r"\b(?:no|nos)\.\s?(?=\d)", lambda match: [["number"]]),
    _rule("number", _NUMBER, lambda match: [_number(match.group())]),
    _rule(
        "abbreviation",
        rf"(?<![\w'])({'|'.join(ABBREVIATIONS)})\b\.?",
        lambda match: one([*ABBREVIATIONS[match[1].lower()], match[1]]),
    ),
    symbol_rule(SYMBOLS),
)
