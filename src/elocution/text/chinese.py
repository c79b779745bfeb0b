"""How Chinese reads numbers, dates, times, money, units and symbols; simplified script."""

import re
from collections.abc import Callable, Sequence
from functools import cache

from elocution.text.english import integer_readings as english_integer
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

__all__ = ["RULES", "integer_readings"]

_DIGITS = "零一二三四五六七八九"
_SIGNS = {"¥": "元", "￥": "元", "$": "美元", "€": "欧元", "£": "英镑", "₩": "韩元"}
_CODES = {"RMB": "人民币", "CNY": "人民币", "USD": "美元", "US$": "美元", "EUR": "欧元", "HK$": "港元", "NT$": "新台币"}
_CURRENCIES = {**_SIGNS, **_CODES}
_OTHER_NAMES = {
    "元": ("块", "块钱", "人民币"),
    "人民币": ("元", "块", "块钱"),
    "美元": ("美金", "刀"),
    "港元": ("港币",),
    "新台币": ("台币",),
}
_UNITS = {
    "m^2": ("平方米", "平米", "平方"),
    "km^2": ("平方公里", "平方千米"),
    "cm^2": ("平方厘米",),
    "m^3": ("立方米", "立方"),
    "km/h": ("公里每小时", "千米每小时", "每小时{}公里", "每小时{}千米", "时速{}公里"),
    "km": ("公里", "千米"),
    "cm": ("厘米", "公分"),
    "mm": ("毫米",),
    "kg": ("公斤", "千克"),
    "mg": ("毫克",),
    "ml": ("毫升",),
    "gb": ("gb", "吉字节"),
    "mb": ("mb", "兆"),
    "°c": ("摄氏度", "度", "摄氏{}度"),
    "°": ("度",),
    "m": ("米",),
    "g": ("克", "g"),
    "l": ("升",),
}
_SYMBOLS = {
    "+": ("加", "", "plus"),
    "=": ("等于",),
    "×": ("乘", "乘以"),
    "÷": ("除以",),
    "<": ("小于", ""),
    ">": ("大于", ""),
    "≤": ("小于等于",),
    "≥": ("大于等于",),
    "≈": ("约等于",),
    "±": ("正负",),
    "%": ("百分号",),
    "&": ("和", "与", "and"),
    "@": ("at", "艾特"),
    "#": ("", "井号"),
    "/": ("", "斜杠", "每", "或"),
    "*": ("", "乘", "星号"),
    "_": ("", "下划线"),
    "~": ("", "到"),
    "|": ("",),
    "^": ("",),
    "√": ("根号",),
    "π": ("派", "pi"),
    **{sign: (name,) for sign, name in _SIGNS.items()},
}
_WEB = {
    "www": ("www", "三w", "w w w", "万维网"),
    ".": ("点", "dot"),
    "/": ("斜杠",),
    ":": ("冒号",),
    "-": ("杠", "横杠", "减号", ""),
    "_": ("下划线",),
    "@": ("at", "艾特"),
    "?": ("问号",),
    "=": ("等于",),
    "&": ("和",),
}


def _below_myriad(number: int) -> str:
    said, gap = "", False
    for power, name in ((1000, "千"), (100, "百"), (10, "十"), (1, "")):
        digit = number // power % 10
        if digit:
            said += ("零" if gap and said else "") + _DIGITS[digit] + name
        gap = not digit
    return said


def _cardinal(number: int) -> str:
    """The number in full, 一十 at its start shortened to 十."""
    if number == 0:
        return "零"
    groups = []
    while number:
        number, group = divmod(number, 10000)
        groups.append(group)
    said = ""
    for level, group in reversed(list(enumerate(groups))):
        if group:
            zero = "零" if said and (group < 1000 or said.endswith("零")) else ""
            said += zero.strip() + _below_myriad(group) + ("", "万", "亿", "万亿")[level]
    return said.removeprefix("一") if said.startswith("一十") else said


@cache
def integer_readings(digits: str) -> tuple[str, ...]:
    """Ways to say a run of digits, the usual one first: as a number (二 or 两), digit by digit (一 or 幺), in English."""
    by_digit = "".join(_DIGITS[int(digit)] for digit in digits)
    plain = [by_digit, by_digit.replace("一", "幺")]
    english = list(english_integer(digits))[:3] if len(digits) <= 4 else []
    if len(digits) > 16 or (len(digits) > 1 and digits[0] == "0"):
        return tuple(distinct([*plain, *english]))
    said = [_cardinal(int(digits))]
    said += [re.sub("二(?=[千万亿百]|$)", "两", form) for form in said if not form.endswith("十二")]
    said += [re.sub("二(?=[千万亿])", "两", said[0]), re.sub("^二(?=[百])", "两", said[0])]
    said += ["一" + form for form in said if form.startswith("十")]
    if int(digits) % 100 == 0 or len(digits) in (3, 4):
        said += [re.sub("([百千万][一二三四五六七八九])[十百千]$", r"\1", said[0])]
    return tuple(distinct([*said, *plain, *english]))


def _number(text: str) -> list[str]:
    whole, _, fraction = text.replace(",", "").partition(".")
    if not fraction:
        return list(integer_readings(whole))
    tail = "".join(_DIGITS[int(digit)] for digit in fraction)
    return products(integer_readings(whole)[:3], ["点"], [tail])


def _year(match: re.Match[str]) -> list[list[str]]:
    by_digit = "".join(_DIGITS[int(digit)] for digit in match[1])
    return one([by_digit, *integer_readings(match[1])])


def _month_day(match: re.Match[str]) -> list[list[str]]:
    year, month, day = match.groups()
    head = [["".join(_DIGITS[int(digit)] for digit in year), *integer_readings(year)], ["年"]] if year else []
    return [*head, list(integer_readings(str(int(month)))), ["月"], list(integer_readings(str(int(day)))), ["日", "号"]]


def _clock(match: re.Match[str]) -> list[list[str]]:
    hour, minute = [*integer_readings(str(int(match[1])))], int(match[2])
    if second := match["second"]:
        minutes, seconds = (products(["", "零"], integer_readings(str(int(part)))[:2]) for part in (match[2], second))
        return [hour, ["点"], minutes, ["分"], seconds, ["秒"]]
    if minute == 0:
        return [hour, ["点", "点整", "点钟", "时"]]
    said = integer_readings(str(minute))[0]
    minutes = [said, f"{said}分"] if minute >= 10 else [f"零{said}", f"零{said}分", f"{said}分"]
    minutes += {15: ["一刻"], 30: ["半"], 45: ["三刻"]}.get(minute, [])
    return [hour, ["点", "时"], minutes]


def _money(match: re.Match[str]) -> list[list[str]]:
    name, amount, scale = _CURRENCIES[match[1].upper()], match[2], match[3] or ""
    names = [name, *_OTHER_NAMES.get(name, ())]
    whole, _, fraction = amount.replace(",", "").partition(".")
    said = products(_number(amount)[:6], [scale], names)
    if fraction and not scale:
        tenths, cents = int(fraction[0]), int(fraction[1:2] or 0)
        coins = (_DIGITS[tenths] + "角" if tenths else "零") + (_DIGITS[cents] + "分" if cents else "")
        short = [coins.removesuffix("分"), coins.replace("角", "毛").removesuffix("分")] if cents else [_DIGITS[tenths]]
        said += products(integer_readings(whole)[:3], names[:2], [coins, coins.replace("角", "毛"), *short])
    said += products([name, match[1]], _number(amount)[:6], [scale]) if match[1].isalpha() else []
    return one(said)


def _scaled(match: re.Match[str]) -> list[list[str]]:
    """Tens of thousands or more with one decimal: 2.5万 is 两万五."""
    whole, tenth, scale = match.groups()
    return one(
        [
            *products(_number(f"{whole}.{tenth}"), [scale]),
            *products(integer_readings(whole)[:4], [scale + _DIGITS[int(tenth)]]),
        ]
    )


def _percent(match: re.Match[str]) -> list[list[str]]:
    said = products(["百分之"], _number(match[1]))
    return one([*said, "百分之百", "百分百"] if match[1] == "100" else said)


def _fraction(match: re.Match[str]) -> list[list[str]]:
    top, bottom = integer_readings(match[1])[0], integer_readings(match[2])[0]
    days = [f"{top}月{bottom}日", f"{top}月{bottom}号"] if int(match[1]) <= 12 and int(match[2]) <= 31 else []
    return one(
        [f"{bottom}分之{top}", f"{top}比{bottom}", f"{top}除以{bottom}", f"{top}斜杠{bottom}", f"{top}{bottom}", *days]
    )


def _mixed(match: re.Match[str]) -> list[list[str]]:
    parts = {"1/2": ["又二分之一", "个半", "点五"], "1/4": ["又四分之一"], "3/4": ["又四分之三"]}
    return one(products(integer_readings(match[1]), parts[match[2]]))


def _power(match: re.Match[str]) -> list[list[str]]:
    exponent = int(match[1])
    names = {2: ["平方", "的平方", "方"], 3: ["立方", "的立方"]}.get(exponent, [])
    said = _cardinal(exponent)
    return one([*names, f"的{said}次方", f"{said}次方"])


def _telephone(match: re.Match[str]) -> list[list[str]]:
    digits = re.sub(r"\D", "", match.group())
    by_digit = "".join(_DIGITS[int(digit)] for digit in digits)
    return one([by_digit, by_digit.replace("一", "幺"), *(integer_readings(digits) if match.group() == digits else ())])


def _unit(match: re.Match[str]) -> list[list[str]]:
    return one(amounts_of(_number(match["amount"]), _UNITS[match["unit"].lower()]))


def _rule(name: str, pattern: str, read: Callable[[re.Match[str]], Sequence[Sequence[str]]]) -> Rule:
    return Rule(name, re.compile(pattern, re.IGNORECASE), read)


_MONEY = "|".join(map(re.escape, sorted(_CURRENCIES, key=len, reverse=True)))
_BETWEEN = ["到", "至", "", "减", "比", "杠"]
RULES = (
    web_rule(_WEB, integer_readings),
    range_rule(_BETWEEN, units=_UNITS, signs=_CURRENCIES),
    _rule("range", r"(?<=\d)\s?[-–—~]\s?(?=\d{4}年)", lambda m: [_BETWEEN]),
    _rule("unit", rf"(?P<amount>{NUMBER})\s?(?P<unit>{unit_pattern(u for u in _UNITS if '^' in u)})(?!\d)", _unit),
    _rule("power", r"\^(\d{1,3})(?!\d)", _power),
    _rule("sign", r"(?<![\w.])-(?=[$¥€£₩]?\d)", lambda m: [["负", "零下"]]),
    _rule("money", rf"(?<![a-z])({_MONEY})\s?({NUMBER})([万亿])?", _money),
    _rule("date", r"(\d{4})[-/.年](\d{1,2})[-/.月](\d{1,2})(?:[日号]|(?!\d))", _month_day),
    _rule("date", r"(?<!\d)()(\d{1,2})月(\d{1,2})[日号]", _month_day),
    _rule(
        "year",
        r"(?<!\d)(\d{4}|\d{2})(?=年(?!前|后|间|内|多|里|级|龄|代))|(?<!\d)([12]\d{3})(?=年)",
        lambda m: _year(m) if m[1] else one([*integer_readings(m[2])]),
    ),
    _rule("time", r"(?<!\d)([01]?\d|2[0-4]):([0-5]\d)(?::(?P<second>[0-5]\d))?(?![\d:])", _clock),
    _rule("time", r"(?<!\d)([01]?\d|2[0-4])点([0-5]\d)分?(?P<second>(?!))?(?![\d:])", _clock),
    _rule("telephone", r"(?<!\d)1[3-9]\d{9}(?!\d)|(?<!\d)0\d{2,3}-\d{7,8}(?!\d)", _telephone),
    _rule("range", r"(?<=\d)\s?[-–—~]\s?(?=\d)", lambda m: [_BETWEEN]),
    _rule("number", r"(?<![\d.,])(\d{1,4})\.(\d)([万亿])", _scaled),
    _rule("fraction", r"(?<![\d/.,])(\d+) (1/2|1/4|3/4)(?![\d/])", _mixed),
    _rule("percent", rf"({NUMBER})\s?%", _percent),
    _rule(
        "unit",
        rf"(?P<amount>{NUMBER})\s?(?P<unit>{unit_pattern(_UNITS)})(?![a-z])",
        _unit,
    ),
    _rule("fraction", r"(?<![\d/])(\d{1,3})\s?/\s?([1-9]\d{0,2})(?![\d/])", _fraction),
    _rule("score", r"(?<=\d)\s?[:]\s?(?=\d)", lambda m: [["比", ""]]),
    _rule("number", NUMBER, lambda m: [_number(m.group())]),
    symbol_rule(_SYMBOLS),
)
