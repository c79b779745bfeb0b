"""How Japanese reads numbers, times, money, units and symbols, written in kanji. Kanji and kana spellings of a word differ."""

import re
from functools import cache

from num2words import num2words

from elocution.text.east_asian import Wording
from elocution.text.rules import distinct

__all__ = ["RULES", "integer_readings"]

_DIGITS = "零一二三四五六七八九"
_CURRENCIES = {"¥": ("円",), "￥": ("円",), "$": ("ドル",), "€": ("ユーロ",), "£": ("ポンド",)}
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
    **_CURRENCIES,
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


def _clock(match: re.Match[str]) -> list[list[str]]:
    minute = int(match[2])
    tail = [f"時{integer_readings(str(minute))[0]}分"] if minute else ["時"]
    return [list(integer_readings(str(int(match[1])))), [*tail, *(["時半"] if minute == 30 else [])]]


def _power(match: re.Match[str]) -> list[list[str]]:
    names = {2: ["の二乗", "二乗", "自乗"], 3: ["の三乗", "三乗"]}
    return [names.get(int(match[1]), [f"の{integer_readings(match[1])[0]}乗"])]


RULES = Wording(
    integer=integer_readings,
    clock=_clock,
    power=_power,
    digits=_DIGITS,
    point="点",
    of="分の",
    minus=("マイナス",),
    between=("から", "", "の", "引く", "ひく", "マイナス"),
    currencies=_CURRENCIES,
    units=_UNITS,
    symbols=_SYMBOLS,
    web=_WEB,
).rules()
