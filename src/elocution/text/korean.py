"""How Korean reads numbers, times, money, units and symbols, in hangul; Sino-Korean and native numbers."""

import re
from functools import cache

from num2words import num2words

from elocution.text.east_asian import Wording
from elocution.text.rules import Rule, distinct

__all__ = ["RULES", "integer_readings"]

_DIGITS = "영일이삼사오육칠팔구"
_NATIVE_ONES = ("", "하나", "둘", "셋", "넷", "다섯", "여섯", "일곱", "여덟", "아홉")
_COUNTING_ONES = ("", "한", "두", "세", "네", "다섯", "여섯", "일곱", "여덟", "아홉")
_NATIVE_TENS = ("", "열", "스물", "서른", "마흔", "쉰", "예순", "일흔", "여든", "아흔")
_CURRENCIES = {"₩": ("원",), "$": ("달러", "불"), "€": ("유로",), "¥": ("엔",), "£": ("파운드",)}
_COINS = {"$": "센트", "€": "센트"}
_UNITS = {
    "m^2": ("제곱미터", "평방미터"),
    "km^2": ("제곱킬로미터", "평방킬로미터"),
    "m^3": ("세제곱미터", "입방미터"),
    "km/h": ("시속{}킬로미터", "시속{}킬로", "킬로미터"),
    "km": ("킬로미터", "킬로"),
    "cm": ("센티미터", "센티"),
    "mm": ("밀리미터",),
    "kg": ("킬로그램", "킬로"),
    "ml": ("밀리리터",),
    "gb": ("기가바이트", "기가"),
    "°c": ("도", "섭씨{}도"),
    "°": ("도",),
    "m": ("미터",),
    "g": ("그램",),
    "l": ("리터",),
    "%": ("퍼센트", "프로"),
}
_SYMBOLS = {
    "+": ("더하기", "플러스", ""),
    "=": ("은", "는", "이퀄"),
    "×": ("곱하기",),
    "÷": ("나누기",),
    "<": ("작다", ""),
    ">": ("크다", ""),
    "%": ("퍼센트", "프로"),
    "&": ("앤드", "와"),
    "@": ("골뱅이", "앳"),
    "#": ("", "샵"),
    "/": ("", "슬래시"),
    "*": ("",),
    "_": ("", "언더바"),
    "~": ("", "에서"),
    "|": ("",),
    "^": ("",),
    **_CURRENCIES,
}
_WEB = {
    "www": ("www", "더블유더블유더블유", "w w w"),
    ".": ("점", "닷"),
    "/": ("슬래시",),
    ":": ("콜론",),
    "-": ("하이픈", ""),
    "_": ("언더바",),
    "@": ("골뱅이", "앳"),
}


@cache
def integer_readings(digits: str) -> tuple[str, ...]:
    """Ways to say a run of digits, the usual one first: Sino-Korean, native, digit by digit (영 or 공)."""
    by_digit = "".join(_DIGITS[int(digit)] for digit in digits)
    plain = [by_digit, by_digit.replace("영", "공")]
    if len(digits) > 15 or (len(digits) > 1 and digits[0] == "0"):
        return tuple(distinct(plain))
    number = int(digits)
    said = [str(num2words(number, lang="ko")).replace(" ", "")]
    # A leading 일 is said before 만 and 천, or not.
    said += ["일" + said[0]] if said[0].startswith(("만", "천")) else []
    said += [said[0].removeprefix("일")] if said[0].startswith(("일억", "일조")) else []
    if 1 <= number <= 99:
        tens, ones = divmod(number, 10)
        said += [_NATIVE_TENS[tens] + names[ones] for names in (_NATIVE_ONES, _COUNTING_ONES)]
        said += ["스무"] if number == 20 else []
    return tuple(distinct([*said, *(["공", "제로"] if number == 0 else []), *plain]))


def _hour(hour: int) -> list[str]:
    """Native for twelve hours and up, or Sino-Korean."""
    native = _NATIVE_TENS[hour // 10] + _COUNTING_ONES[hour % 10]
    return [said for said in (native, *integer_readings(str(hour))) if said]


def _power(match: re.Match[str]) -> list[list[str]]:
    names = {2: ["제곱", "의제곱"], 3: ["세제곱", "의세제곱"]}
    return [names.get(int(match[1]), [f"의{integer_readings(match[1])[0]}제곱"])]


_FIRST = Rule("ordinal", re.compile(r"(?<!\d)1(?=\s?번째)"), lambda match: [["첫", "한", "일"]])

RULES = (
    _FIRST,
    *Wording(
        integer=integer_readings,
        hour=_hour,
        power=_power,
        digits=_DIGITS,
        point="점",
        of="분의",
        calendar=("년", "월", "일"),
        time=("시", "분", "초", "시반"),
        months={6: "유", 10: "시"},
        minus=("마이너스", "영하"),
        between=("에서", "", "다시", "빼기", "부터"),
        versus=("대", ""),
        currencies=_CURRENCIES,
        coins=_COINS,
        units=_UNITS,
        symbols=_SYMBOLS,
        web=_WEB,
    ).rules(),
)
