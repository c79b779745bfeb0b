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
    if 2010 <= number <= 2099:
        said.append(f"zwanzig{num2words(number % 100, lang='de')}")
    if number > 100 and 0 < number % 100 <= 12:
        said += [f"{num2words(number - number % 100, lang='de')}und{num2words(number % 100, lang='de')}"]
    said += [form.replace("zwei", "zwo") for form in said]
    said += [form.removeprefix("ein") for form in said if form.startswith(("einhundert", "eintausend"))]
    said += ["ein", "eine", "einen", "einem", "einer"] if number == 1 else []
    return tuple(distinct([form.lower() for form in said + two_forms]))


def _ordinal(digits: str) -> tuple[str, ...]:
    stem = str(num2words(int(digits), lang="de", to="ordinal")).lower()
    stems = distinct([stem, stem.removeprefix("ein") if stem.startswith(("einhundert", "eintausend")) else stem])
    return (*stems, *(stem + ending for stem in stems for ending in "nrsm"))


def _part(digits: str) -> tuple[str, ...]:
    if int(digits) < 2:
        return ()
    return ("halb", "halbe", "halbes", "halber") if int(digits) == 2 else (_ordinal(digits)[0] + "l",)


def _clock(hour: int, minute: int) -> list[str]:
    """By halves, quarters and minutes to or past the hour, which has twelve there."""
    (now, *_), (following, *_) = (integer_readings(str((h - 1) % 12 + 1)) for h in (hour, hour + 1))
    now, following = ("eins" if said == "ein" else said for said in (now, following))
    if minute == 0:
        return []
    left = integer_readings(str(60 - minute))[0] if minute > 30 else integer_readings(str(minute))[0]
    said = [f"{left} vor {following}" if minute > 30 else f"{left} nach {now}"]
    return [
        *{
            15: [f"viertel nach {now}", f"viertel {following}"],
            25: [f"fünf vor halb {following}"],
            30: [f"halb {following}"],
            35: [f"fünf nach halb {following}"],
            45: [f"viertel vor {following}", f"dreiviertel {following}", f"drei viertel {following}"],
        }.get(minute, []),
        *said,
    ]


RULES = rules_of(
    Vocabulary(
        integer=integer_readings,
        ordinal=_ordinal,
        part=_part,
        clock=_clock,
        halves={
            "1/2": ("einhalb", "ein halb", "und ein halb", "und eine halbe"),
            "1/4": ("einviertel", "ein viertel", "und ein viertel"),
            "3/4": ("dreiviertel", "drei viertel", "und drei viertel"),
        },
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
            "EUR": ("euro", "euro", "cent", "cent"),
            "USD": ("us dollar", "dollar", "cent", "cent"),
            "US$": ("us dollar", "dollar", "cent", "cent"),
            "CHF": ("schweizer franken", "franken", "rappen", "rappen"),
            "ct": ("cent", "cent", "", ""),
        },
        coin_joiner=("und",),
        hours=("uhr",),
        minutes=("minuten", "minute"),
        seconds=("sekunden", "sekunde"),
        hour_mark="Uhr",
        versus=("zu", "", "doppelpunkt"),
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
            "m^2": ("quadratmeter", "meter quadrat"),
            "km^2": ("quadratkilometer", "kilometer quadrat"),
            "cm^2": ("quadratzentimeter", "zentimeter quadrat"),
            "m^3": ("kubikmeter", "meter hoch drei"),
            "Std.": ("stunden", "stunde"),
            "Std": ("stunden", "stunde"),
            "Min.": ("minuten", "minute"),
            "min": ("minuten", "minute"),
            "Sek.": ("sekunden", "sekunde"),
            "s": ("sekunden", "sekunde"),
            "h": ("stunden", "stunde", "uhr"),
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
            "prof.": ("professor",),
            "str.": ("strasse",),
            "mio.": ("millionen", "million"),
            "mrd.": ("milliarden", "milliarde"),
            "ca.": ("circa", "zirka"),
        },
    )
)
