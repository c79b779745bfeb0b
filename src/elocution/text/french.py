"""How French reads numbers, dates, times, money, units and symbols."""

from functools import cache

from num2words import num2words

from elocution.text.latin import Vocabulary, rules_of
from elocution.text.rules import distinct

__all__ = ["RULES", "integer_readings"]


def _spoken(number: int, to: str = "cardinal") -> str:
    return str(num2words(number, lang="fr", to=to)).replace("-", " ")


@cache
def integer_readings(digits: str) -> tuple[str, ...]:
    """Ways to say a run of digits, the usual one first: as a number, in pairs, digit by digit."""
    by_digit = " ".join(_spoken(int(digit)) for digit in digits)
    pairs = (
        " ".join(_spoken(int(digits[at : at + 2])) for at in range(0, len(digits), 2)) if len(digits) % 2 == 0 else ""
    )
    leading = f"zéro {_spoken(int(digits))}" if len(digits) == 2 and digits[0] == "0" else by_digit
    if len(digits) > 15 or (len(digits) > 1 and digits[0] == "0"):
        return tuple(distinct([leading, by_digit]))
    said = [_spoken(int(digits))]
    # Agreement that writing shows and speech does not, or that depends on the noun.
    said += [said[0].replace("quatre vingts", "quatre vingt").replace("cents", "cent")]
    regional = [str(num2words(int(digits), lang=lang)).replace("-", " ") for lang in ("fr_BE", "fr_CH")]
    said += [form for form in regional if "septante" in form or "huitante" in form or "nonante" in form]
    said += [form[:-2] + "une" for form in said if form == "un" or form.endswith(" un")]
    if len(digits) == 4 and digits[0] == "1" and digits[1] != "0":
        hundreds = f"{_spoken(int(digits[:2]))} cent"
        said.append(f"{hundreds} {_spoken(int(digits[2:]))}" if digits[2:] != "00" else hundreds + "s")
    return tuple(distinct([*said, by_digit, *([pairs] if pairs else [])]))


def _ordinal(digits: str) -> tuple[str, ...]:
    if int(digits) == 1:
        return ("premier", "première")
    said = _spoken(int(digits), "ordinal").replace("vingtsième", "vingtième").replace("centsième", "centième")
    return (said, said + "s", *(("second", "seconde") if int(digits) == 2 else ()))


def _part(digits: str) -> tuple[str, ...]:
    named = {2: ("demi", "demie"), 3: ("tiers",), 4: ("quart", "quarts")}
    return named.get(int(digits), _ordinal(digits) if int(digits) > 1 else ())


def _clock(hour: int, minute: int) -> list[str]:
    """By halves, quarters and minutes to the next hour; noon and midnight by name."""
    (now, *heads), (following, *nexts) = _hours(hour), _hours((hour + 1) % 24)
    heads, nexts = [now, *heads], [following, *nexts]
    if minute == 0:
        return heads[1:]
    tails = {15: ["et quart", "un quart"], 30: ["et demie", "et demi", "trente"]}.get(minute, [])
    tails += [_spoken(minute)]
    before = {45: ["moins le quart", "moins un quart"]}.get(minute, [])
    before += [f"moins {_spoken(60 - minute)}"] if minute > 30 else []
    said = [f"{head} {tail}" for head in heads for tail in tails]
    return said + [f"{head} {tail}" for head in nexts for tail in before]


def _hours(hour: int) -> list[str]:
    names = {0: ["minuit"], 24: ["minuit"], 12: ["midi"]}.get(hour, [])
    said = [f"{integer_readings(str(h))[0]} heures" for h in dict.fromkeys((hour, (hour - 1) % 12 + 1))]
    said += ["une heure"] if hour % 12 == 1 else []
    return [*said[:1], *names, *said[1:]]


RULES = rules_of(
    Vocabulary(
        integer=integer_readings,
        ordinal=_ordinal,
        part=_part,
        clock=_clock,
        halves={
            "1/2": ("et demi", "et demie", "un demi"),
            "1/4": ("et quart", "et un quart", "un quart"),
            "3/4": ("trois quarts", "et trois quarts"),
        },
        grouping=r"[.\u2009\u202f\u00a0 ]",
        ordinal_mark=r"(?:er|ère|re|ème|eme|e|nd|nde)\b",
        comma=("virgule",),
        point=("point", "virgule"),
        months="janvier février mars avril mai juin juillet août septembre octobre novembre décembre".split(),
        of="",
        currencies={
            "€": ("euro", "euros", "centime", "centimes"),
            "$": ("dollar", "dollars", "cent", "cents"),
            "£": ("livre", "livres", "penny", "pence"),
            "EUR": ("euro", "euros", "centime", "centimes"),
            "USD": ("dollar américain", "dollars américains", "cent", "cents"),
            "US$": ("dollar américain", "dollars américains", "cent", "cents"),
            "CHF": ("franc suisse", "francs suisses", "centime", "centimes"),
        },
        coin_joiner=("et",),
        hours=("heures", "heure"),
        minutes=("minutes", "minute"),
        seconds=("secondes", "seconde"),
        hour_mark="h|heures?",
        versus=("à", "", "deux points"),
        range_words=("à", "", "moins"),
        minus="moins",
        power=(
            ("puissance",),
            ("puissance un",),
            ("au carré", "carré", "puissance deux"),
            ("au cube", "cube", "puissance trois"),
        ),
        symbols={
            "+": ("plus", ""),
            "=": ("égale", "égal", "est égal à"),
            "×": ("fois",),
            "÷": ("divisé par",),
            "<": ("inférieur à", ""),
            ">": ("supérieur à", ""),
            "%": ("pour cent", "pourcent"),
            "&": ("et",),
            "@": ("arobase", "at"),
            "#": ("", "dièse", "hashtag", "numéro"),
            "/": ("", "slash", "sur", "par", "ou"),
            "*": ("", "fois", "étoile"),
            "_": ("", "tiret bas"),
            "~": ("", "environ"),
            "|": ("",),
            "^": ("", "puissance"),
            "°": ("degrés", "degré"),
            "€": ("euros", "euro"),
            "$": ("dollars", "dollar"),
            "£": ("livres", "livre"),
        },
        units={
            "m^2": ("mètres carrés", "mètre carré"),
            "km^2": ("kilomètres carrés", "kilomètre carré"),
            "cm^2": ("centimètres carrés", "centimètre carré"),
            "m^3": ("mètres cubes", "mètre cube"),
            "M€": ("millions d'euros", "million d'euros"),
            "min": ("minutes", "minute"),
            "s": ("secondes", "seconde"),
            "km/h": ("kilomètres heure", "kilomètres par heure", "kilomètres à l'heure"),
            "km": ("kilomètres", "kilomètre"),
            "cm": ("centimètres", "centimètre"),
            "mm": ("millimètres", "millimètre"),
            "m": ("mètres", "mètre"),
            "kg": ("kilogrammes", "kilos", "kilo", "kilogramme"),
            "g": ("grammes", "gramme"),
            "l": ("litres", "litre"),
            "ml": ("millilitres", "millilitre"),
            "Go": ("gigaoctets",),
            "°C": ("degrés celsius", "degrés", "degré celsius"),
            "°": ("degrés", "degré"),
        },
        web={
            ".": ("point",),
            "/": ("slash", "barre oblique"),
            ":": ("deux points",),
            "-": ("tiret", ""),
            "_": ("tiret bas", "underscore"),
            "@": ("arobase", "at"),
            "?": ("point d'interrogation",),
            "=": ("égale",),
            "&": ("et",),
        },
        abbreviations={
            "m.": ("monsieur", "m"),
            "mme": ("madame",),
            "mlle": ("mademoiselle",),
            "dr": ("docteur",),
            "etc.": ("et cetera", "etcetera"),
            "n°": ("numéro",),
        },
    )
)
