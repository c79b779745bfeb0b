"""How Japanese reads numbers, times, money, units and symbols, written in kanji. Kanji and kana spellings of a word differ."""

import re
from functools import cache

from num2words import num2words

from elocution.text.rules import NUMBER, Rule, distinct, products, symbol_rule, unit_pattern, web_rule

__all__ = ["RULES", "integer_readings"]

_DIGITS = "零一二三四五六七八九"
_CURRENCIES = {"¥": "円", "￥": "円", "$": "ドル", "€": "ユーロ", "£": "ポンド"}
_UNITS = {
    "km/h": ("キロメートル毎時", "キロ"),
    "km": ("キロメートル", "キロ"),
    "cm": ("センチメートル", "センチ"),
    "mm": ("ミリメートル", "ミリ"),
    "kg": ("キログラム", "キロ"),
    "ml": ("ミリリットル",),
    "gb": ("ギガバイト", "ギガ"),
    "°c": ("度", "摂氏"),
    "°": ("度",),
    "m": ("メートル",),
    "g": ("グラム",),
    "l": ("リットル",),
    "%": ("パーセント",),
}
_SYMBOLS = {
    "+": ("プラス", "足す", "たす", ""),
    "=": ("イコール", "は"),
    "×": ("かける", "掛ける"),
    "÷": ("割る", "わる"),
    "<": ("小なり", ""),
    ">": ("大なり", ""),
    "%": ("パーセント",),
    "&": ("アンド", "と"),
    "@": ("アットマーク", "アット"),
    "#": ("", "シャープ"),
    "/": ("", "スラッシュ"),
    "*": ("",),
    "_": ("", "アンダーバー"),
    "~": ("", "から"),
    "|": ("",),
    "^": ("",),
    **{sign: (name,) for sign, name in _CURRENCIES.items()},
}
_WEB = {
    ".": ("ドット",),
    "/": ("スラッシュ",),
    ":": ("コロン",),
    "-": ("ハイフン", ""),
    "_": ("アンダーバー",),
    "@": ("アットマーク", "アット"),
}


@cache
def integer_readings(digits: str) -> tuple[str, ...]:
    """Ways to say a run of digits, in kanji, the usual one first: as a number, digit by digit."""
    by_digit = "".join(_DIGITS[int(digit)] for digit in digits)
    if len(digits) > 15 or (len(digits) > 1 and digits[0] == "0"):
        return (by_digit,)
    said = [str(num2words(int(digits), lang="ja"))]
    return tuple(distinct([*said, *("ゼロ" for _ in said if said == ["零"]), by_digit]))


def _number(text: str) -> list[str]:
    whole, _, fraction = text.replace(",", "").partition(".")
    if not fraction:
        return list(integer_readings(whole))
    return products(integer_readings(whole)[:2], ["点"], ["".join(_DIGITS[int(digit)] for digit in fraction)])


def _clock(match: re.Match[str]) -> list[list[str]]:
    minute = int(match[2])
    tail = [f"時{integer_readings(str(minute))[0]}分"] if minute else ["時"]
    return [list(integer_readings(str(int(match[1])))), [*tail, *(["時半"] if minute == 30 else [])]]


def _power(match: re.Match[str]) -> list[list[str]]:
    names = {2: ["の二乗", "二乗", "自乗"], 3: ["の三乗", "三乗"]}
    return [names.get(int(match[1]), [f"の{integer_readings(match[1])[0]}乗"])]


RULES = (
    web_rule(_WEB, integer_readings),
    Rule("power", re.compile(r"\^(\d)(?!\d)"), _power),
    Rule("sign", re.compile(r"(?<![\w.])-(?=[$¥€£₩]?\d)"), lambda match: [["マイナス"]]),
    Rule(
        "money",
        re.compile(rf"([{re.escape(''.join(_CURRENCIES))}])\s?({NUMBER})"),
        lambda match: [_number(match[2]), [_CURRENCIES[match[1]]]],
    ),
    Rule("time", re.compile(r"(?<!\d)([01]?\d|2[0-4]):([0-5]\d)(?!\d)"), _clock),
    Rule(
        "range",
        re.compile(r"(?<=\d)\s?[-–—~]\s?(?=\d)"),
        lambda match: [["から", "", "の", "引く", "ひく", "マイナス"]],
    ),
    Rule(
        "unit",
        re.compile(rf"({NUMBER})\s?({unit_pattern(_UNITS)})(?![a-zA-Z])", re.IGNORECASE),
        lambda match: [_number(match[1]), list(_UNITS[match[2].lower()])],
    ),
    Rule(
        "fraction",
        re.compile(r"(?<![\d/])(\d{1,3})/([1-9]\d{0,2})(?![\d/])"),
        lambda match: [[f"{integer_readings(match[2])[0]}分の{integer_readings(match[1])[0]}"]],
    ),
    Rule("number", re.compile(NUMBER), lambda match: [_number(match.group())]),
    symbol_rule(_SYMBOLS),
)
