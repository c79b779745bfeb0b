"""How Spanish reads numbers, dates, times, money, units and symbols."""

from functools import cache

from num2words import num2words

from elocution.text.latin import Vocabulary, rules_of
from elocution.text.rules import distinct

__all__ = ["RULES", "integer_readings"]


@cache
def integer_readings(digits: str) -> tuple[str, ...]:
    """Ways to say a run of digits, the usual one first: as a number, agreeing with a noun, digit by digit."""
    by_digit = " ".join(str(num2words(int(digit), lang="es")) for digit in digits)
    if len(digits) > 15 or (len(digits) > 1 and digits[0] == "0"):
        return (by_digit,)
    said = [str(num2words(int(digits), lang="es"))]
    if said[0].endswith("veintiuno"):
        said += [said[0][:-3] + "ún", said[0][:-1] + "a"]
    elif said[0].endswith("uno"):
        said += [said[0][:-1], said[0][:-1] + "a"]
    said += [form.replace("cientos", "cientas").replace("quinientos", "quinientas") for form in said]
    return tuple(distinct([*said, by_digit]))


def _ordinal(digits: str) -> tuple[str, ...]:
    said = str(num2words(int(digits), lang="es", to="ordinal"))
    feminine = " ".join(word[:-1] + "a" for word in said.split())
    short = {"1": "primer", "3": "tercer"}.get(digits)
    return (said, feminine, *((short,) if short else ()))


RULES = rules_of(
    Vocabulary(
        integer=integer_readings,
        ordinal=_ordinal,
        grouping=r"[.\u2009\u202f\u00a0 ]",
        ordinal_mark=r"\.?°|\.?[oa]\b|(?:ero|era|er|do|da|to|ta|vo|va|mo|ma|no|na)\b",
        comma=("coma",),
        point=("punto", "coma"),
        months="enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre".split(),
        of="de",
        currencies={
            "€": ("euro", "euros", "céntimo", "céntimos"),
            "$": ("dólar", "dólares", "centavo", "centavos"),
            "£": ("libra", "libras", "penique", "peniques"),
        },
        coin_joiner=("con", "y"),
        hours=("", "y", "horas"),
        hour_mark="h|horas",
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
        },
    )
)
