"""How Japanese reads numbers, times, money, units and symbols, written in kanji. Kanji and kana spellings of a word differ."""

import re
from functools import cache

from num2words import num2words

from elocution.text.east_asian import Wording
from elocution.text.rules import distinct

__all__ = ["RULES", "integer_readings"]

_DIGITS = "零一二三四五六七八九"
_CURRENCIES = {"¥": ("円",), "￥": ("円",), "$": ("ドル",), "€": ("ユーロ",), "£": ("ポンド",)}
_COINS = {"$": "セント", "€": "セント"}
_UNITS = {
    "m^2": ("平方メートル", "平米"),
    "km^2": ("平方キロメートル", "平方キロ"),
    "m^3": ("立方メートル", "立米"),
    "km/h": ("時速{}キロ", "時速{}キロメートル", "キロメートル毎時", "キロ"),
    "km": ("キロメートル", "キロ"),
    "cm": ("センチメートル", "センチ"),
    "mm": ("ミリメートル", "ミリ"),
    "kg": ("キログラム", "キロ"),
    "ml": ("ミリリットル",),
    "gb": ("ギガバイト", "ギガ"),
    "°c": ("度", "摂氏{}度"),
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
    "www": ("www", "ダブリューダブリューダブリュー", "ダブルダブルダブル", "w w w"),
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
    plain = [by_digit, *(by_digit.replace("零", zero) for zero in ("ゼロ", "れい"))]
    if len(digits) > 15 or (len(digits) > 1 and digits[0] == "0"):
        return tuple(distinct(plain))
    said = [str(num2words(int(digits), lang="ja"))]
    # A single thousand may be said 一千, and must before 万.
    said += [re.sub("(?<![二三四五六七八九])千", "一千", said[0])]
    return tuple(distinct([*said, *plain]))


def _hour(hour: int) -> tuple[str, ...]:
    return integer_readings(str(hour))


def _power(match: re.Match[str]) -> list[list[str]]:
    names = {2: ["の二乗", "二乗", "自乗"], 3: ["の三乗", "三乗"]}
    return [names.get(int(match[1]), [f"の{integer_readings(match[1])[0]}乗"])]


RULES = Wording(
    integer=integer_readings,
    hour=_hour,
    power=_power,
    digits=_DIGITS,
    point="点",
    of="分の",
    calendar=("年", "月", "日"),
    time=("時", "分", "秒", "時半"),
    months={},
    minus=("マイナス",),
    between=("から", "", "の", "引く", "ひく", "マイナス"),
    versus=("対", "たい", ""),
    currencies=_CURRENCIES,
    coins=_COINS,
    units=_UNITS,
    symbols=_SYMBOLS,
    web=_WEB,
).rules()
