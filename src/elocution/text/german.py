"""How German reads numbers, dates, times, money, units and symbols."""

from functools import cache

from num2words import num2words

from elocution.text.latin import Vocabulary, rules_of
from elocution.text.rules import distinct

__all__ = ["RULES", "integer_readings"]


@cache
def integer_readings(digits: str) -> tuple[str, ...]:
    """Ways to say a run of digits, the usual one first: as a number, as a year, digit by digit."""
    by_digit = " ".join(str(num2words(int(digit), lang="de")) for digit in digits)
    two_forms = [by_digit, by_digit.replace("zwei", "zwo")]
    if len(digits) > 15 or (len(digits) > 1 and digits[0] == "0"):
        return tuple(distinct(two_forms))
    number = int(digits)
    said = [str(num2words(number, lang="de"))]
    if 1100 <= number <= 1999:
        said.insert(0, str(num2words(number, lang="de", to="year")))
    said += [form.replace("zwei", "zwo") for form in said]
    said += [form.removeprefix("ein") for form in said if form.startswith(("einhundert", "eintausend"))]
    said += ["ein", "eine", "einen", "einem", "einer"] if number == 1 else []
    return tuple(distinct([form.lower() for form in said + two_forms]))


def _ordinal(digits: str) -> tuple[str, ...]:
    stem = str(num2words(int(digits), lang="de", to="ordinal")).lower()
    return (stem, *(stem + ending for ending in "nrsm"))


RULES = rules_of(
    Vocabulary(
        integer=integer_readings,
        ordinal=_ordinal,
        grouping=r"[.\u2009\u202f\u00a0]",
        ordinal_mark=r"\.(?=\s+[^\W\d_])",
        comma=("komma",),
        point=("punkt", "komma"),
        months="januar februar märz april mai juni juli august september oktober november dezember".split(),
        of="",
        currencies={
            "€": ("euro", "euro", "cent", "cent"),
            "$": ("dollar", "dollar", "cent", "cent"),
            "£": ("pfund", "pfund", "pence", "pence"),
        },
        coin_joiner=("und",),
        hours=("uhr",),
        hour_mark="Uhr",
        range_words=("bis", "", "minus", "zu"),
        minus="minus",
        power=(("hoch",), ("hoch eins",), ("quadrat", "hoch zwei", "zum quadrat"), ("hoch drei",)),
        symbols={
            "+": ("plus", ""),
            "=": ("gleich", "ist gleich", "ist"),
            "×": ("mal",),
            "÷": ("durch", "geteilt durch"),
            "<": ("kleiner als", ""),
            ">": ("größer als", ""),
            "%": ("prozent",),
            "&": ("und",),
            "@": ("at",),
            "#": ("", "hashtag", "raute", "nummer"),
            "/": ("", "schrägstrich", "durch", "pro", "oder", "slash"),
            "*": ("", "mal", "sternchen"),
            "_": ("", "unterstrich"),
            "~": ("", "ungefähr", "etwa"),
            "|": ("",),
            "^": ("", "hoch"),
            "°": ("grad",),
            "§": ("paragraph", "paragraf"),
            "€": ("euro",),
            "$": ("dollar",),
            "£": ("pfund",),
        },
        units={
            "km/h": ("kilometer pro stunde", "stundenkilometer", "k m h"),
            "km": ("kilometer",),
            "cm": ("zentimeter",),
            "mm": ("millimeter",),
            "m": ("meter",),
            "kg": ("kilogramm", "kilo"),
            "g": ("gramm",),
            "mg": ("milligramm",),
            "l": ("liter",),
            "ml": ("milliliter",),
            "GB": ("gigabyte",),
            "MB": ("megabyte",),
            "°C": ("grad celsius", "grad"),
            "°": ("grad",),
        },
        web={
            ".": ("punkt", "dot"),
            "/": ("schrägstrich", "slash"),
            ":": ("doppelpunkt",),
            "-": ("minus", "bindestrich", ""),
            "_": ("unterstrich",),
            "@": ("at", "ät"),
            "?": ("fragezeichen",),
            "=": ("gleich",),
            "&": ("und",),
        },
        abbreviations={
            "z.b.": ("zum beispiel",),
            "z. b.": ("zum beispiel",),
            "d.h.": ("das heißt",),
            "usw.": ("und so weiter",),
            "bzw.": ("beziehungsweise",),
            "dr.": ("doktor",),
            "nr.": ("nummer",),
            "ca.": ("circa", "zirka"),
        },
    )
)
