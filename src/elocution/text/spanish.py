"""How Spanish reads numbers, dates, times, money, units and symbols."""

import re
from functools import cache

from num2words import num2words

from elocution.text.latin import Vocabulary, rules_of
from elocution.text.rules import Rule, distinct

__all__ = ["RULES", "integer_readings"]


@cache
def integer_readings(digits: str) -> tuple[str, ...]:
    """Ways to say a run of digits, the usual one first: as a number, agreeing with a noun, digit by digit."""
    by_digit = " ".join(str(num2words(int(digit), lang="es")) for digit in digits)
    if len(digits) > 15 or (len(digits) > 1 and digits[0] == "0"):
        return (by_digit,)
    said = [str(num2words(int(digits), lang="es"))]
    if said[0] == "cien":
        said += ["ciento"]
    if len(digits) == 4 and digits[0] in "12" and digits[1] != "0":
        said += [f"{num2words(int(digits[:2]), lang='es')} {num2words(int(digits[2:]), lang='es')}"]
    if said[0].endswith("veintiuno"):
        said += [said[0][:-3] + "ún", said[0][:-1] + "a"]
    elif said[0].endswith("uno"):
        said += [said[0][:-1], said[0][:-1] + "a"]
    said += [form.replace("cientos", "cientas").replace("quinientos", "quinientas") for form in said]
    return tuple(distinct([*said, by_digit]))


def _ordinal(digits: str) -> tuple[str, ...]:
    said = str(num2words(int(digits), lang="es", to="ordinal"))
    forms = [said, *{11: ["undécimo"], 12: ["duodécimo"]}.get(int(digits), [])]
    forms += [form.replace("décimo", "decimo") for form in forms if form.startswith("décimo") and form != "décimo"]
    forms += [form.replace("vigésimo ", "vigesimo") for form in forms if " " in form]
    feminine = [" ".join(word[:-1] + "a" for word in form.split()) for form in forms]
    short = {"1": "primer", "3": "tercer"}.get(digits)
    return tuple(distinct([*forms, *feminine, *((short,) if short else ())]))


def _part(digits: str) -> tuple[str, ...]:
    number = int(digits)
    named = {2: ("medio", "media"), 3: ("tercio", "tercios")}
    if number in named or number < 2:
        return named.get(number, ())
    stem = _ordinal(digits)[0] if number <= 10 else str(num2words(number, lang="es")).replace(" ", "") + "avo"
    stem = {"cienavo": "centésimo"}.get(
        stem.replace("oavo", "avo"), stem.replace("oavo", "avo").replace("eavo", "eavo")
    )
    return (stem, stem + "s")


def _clock(hour: int, minute: int) -> list[str]:
    """By halves, quarters and minutes to the next hour, which has twelve there."""
    heads, nexts = (_hour(h) for h in (hour, (hour + 1) % 24))
    if minute == 0:
        return [*heads, *(f"{head} en punto" for head in heads)]
    tails = [f"y {_spoken(minute)}", _spoken(minute), *{15: ["y cuarto"], 30: ["y media"]}.get(minute, [])]
    tails += [f"cero {_spoken(minute)}"] if minute < 10 else []
    before = {45: ["menos cuarto"]}.get(minute, []) + ([f"menos {_spoken(60 - minute)}"] if minute > 30 else [])
    said = [f"{head} {tail}" for head in heads for tail in tails]
    return said + [f"{head} {tail}" for head in nexts for tail in before]


def _hour(hour: int) -> list[str]:
    return ["una" if h == 1 else _spoken(h) for h in dict.fromkeys((hour, (hour - 1) % 12 + 1))]


def _spoken(number: int) -> str:
    return str(num2words(number, lang="es"))


_NUMBER_SIGN = re.compile(r"(?<!\w)n\.?[o°]\.?\s?(?=\d)", re.IGNORECASE)
RULES = (
    Rule("abbreviation", _NUMBER_SIGN, lambda match: [["número", "no"]]),
    *rules_of(
        Vocabulary(
            integer=integer_readings,
            ordinal=_ordinal,
            part=_part,
            clock=_clock,
            halves={
                "1/2": ("y medio", "y media", "un medio"),
                "1/4": ("y cuarto", "y un cuarto", "un cuarto"),
                "3/4": ("y tres cuartos", "tres cuartos"),
            },
            grouping=r"[.\u2009\u202f\u00a0 ]",
            ordinal_mark=r"\.?°|\.?[oa]\b|\.?(?:ero|era|er|do|da|to|ta|vo|va|mo|ma|no|na)\b",
            comma=("coma",),
            point=("punto", "coma"),
            months="enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre".split(),
            of="de",
            currencies={
                "€": ("euro", "euros", "céntimo", "céntimos"),
                "$": ("dólar", "dólares", "centavo", "centavos"),
                "£": ("libra", "libras", "penique", "peniques"),
                "EUR": ("euro", "euros", "céntimo", "céntimos"),
                "USD": ("dólar", "dólares", "centavo", "centavos"),
                "US$": ("dólar", "dólares", "centavo", "centavos"),
            },
            coin_joiner=("con", "y"),
            hours=("", "y", "horas"),
            minutes=("minutos", "minuto", "horas"),
            seconds=("segundos", "segundo"),
            hour_mark="h|horas",
            versus=("a", "", "dos puntos"),
            range_words=("a", "", "menos"),
            minus="menos",
            power=(("elevado a",), ("elevado a uno",), ("al cuadrado", "cuadrado"), ("al cubo",)),
            symbols={
                "+": ("más", ""),
                "=": ("igual a", "es igual a", "igual", "son"),
                "×": ("por",),
                "÷": ("entre", "dividido por", "dividido entre"),
                "<": ("menor que", ""),
                ">": ("mayor que", ""),
                "%": ("por ciento", "porciento"),
                "&": ("y",),
                "@": ("arroba", "at"),
                "#": ("", "almohadilla", "numeral", "número"),
                "/": ("", "barra", "por", "o", "sobre"),
                "*": ("", "por", "asterisco"),
                "_": ("", "guion bajo"),
                "~": ("", "aproximadamente"),
                "|": ("",),
                "^": ("", "elevado a"),
                "°": ("grados", "grado"),
                "€": ("euros", "euro"),
                "$": ("dólares", "dólar", "pesos"),
                "£": ("libras", "libra"),
            },
            units={
                "m^2": ("metros cuadrados", "metro cuadrado"),
                "km^2": ("kilómetros cuadrados", "kilómetro cuadrado"),
                "cm^2": ("centímetros cuadrados", "centímetro cuadrado"),
                "m^3": ("metros cúbicos", "metro cúbico"),
                "min": ("minutos", "minuto"),
                "s": ("segundos", "segundo"),
                "km/h": ("kilómetros por hora",),
                "km": ("kilómetros", "kilómetro"),
                "cm": ("centímetros", "centímetro"),
                "mm": ("milímetros", "milímetro"),
                "m": ("metros", "metro"),
                "kg": ("kilogramos", "kilos", "kilogramo", "kilo"),
                "g": ("gramos", "gramo"),
                "l": ("litros", "litro"),
                "ml": ("mililitros", "mililitro"),
                "GB": ("gigabytes", "gigas"),
                "°C": ("grados celsius", "grados centígrados", "grados"),
                "°": ("grados", "grado"),
            },
            web={
                ".": ("punto",),
                "/": ("barra",),
                ":": ("dos puntos",),
                "-": ("guion", ""),
                "_": ("guion bajo",),
                "@": ("arroba",),
                "?": ("signo de interrogación",),
                "=": ("igual",),
                "&": ("y",),
            },
            abbreviations={
                "sr.": ("señor",),
                "sra.": ("señora",),
                "dr.": ("doctor",),
                "dra.": ("doctora",),
                "etc.": ("etcétera",),
                "ud.": ("usted",),
                "núm.": ("número",),
                "p.m.": ("p m", "de la tarde", "de la noche"),
                "p. m.": ("p m", "de la tarde", "de la noche"),
                "a.m.": ("a m", "de la mañana"),
                "a. m.": ("a m", "de la mañana"),
                "ee. uu.": ("estados unidos",),
            },
        )
    ),
)
