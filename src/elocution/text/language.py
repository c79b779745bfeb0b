"""Which language a text is in: by script where that decides, else by a statistical identifier."""

import re
from functools import cache

from py3langid.langid import MODEL_FILE, LanguageIdentifier

from elocution.errors import ConfigError
from elocution.text.rules import ADDRESS

__all__ = ["LATIN_LANGUAGES", "check_language", "holds_script_of", "identify_language", "route_language"]

LATIN_LANGUAGES = ("en", "de", "fr", "es")
_HAN = re.compile("[\u3005\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_KANA = re.compile("[\u3041-\u309f\u30a1-\u30fa\u30fd-\u30ff\u31f0-\u31ff\uff66-\uff9d]")
_HANGUL = re.compile("[\u1100-\u11ff\u3131-\u318e\uac00-\ud7a3]")
_LATIN_WORD = re.compile("[A-Za-z\u00c0-\u024f\u1e00-\u1eff]+")
_FEW_WORDS = 3
_LONG_WORD = 4


@cache
def _identifier() -> LanguageIdentifier:
    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


@cache
def _latin_identifier() -> LanguageIdentifier:
    identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    identifier.set_languages(list(LATIN_LANGUAGES))
    return identifier


def check_language(code: str) -> None:
    """Raises: ConfigError with the code that was meant, if `code` is not that of a language that recognisers know."""
    from transformers.models.whisper.tokenization_whisper import LANGUAGES, TO_LANGUAGE_CODE

    if code in LANGUAGES:
        return
    meant = TO_LANGUAGE_CODE.get(code.lower()) or TO_LANGUAGE_CODE.get(code.lower().replace("_", "-").split("-")[0])
    meant = meant or (code.lower()[:2] if code.lower()[:2] in LANGUAGES else None)
    hint = f"did you mean {meant!r}?" if meant else f"known are {', '.join(sorted(LANGUAGES))}"
    raise ConfigError(f"there is no language {code!r:.40}; give its ISO 639-1 code: {hint}")


def identify_language(text: str) -> tuple[str, float]:
    """ISO 639-1 code and the identifier's probability in [0, 1]; short texts are uncertain.

    Chinese, Japanese and Korean are told by script. The share of ASCII letters tells no Latin language from another.
    """
    han, kana, hangul = (len(pattern.findall(text)) for pattern in (_HAN, _KANA, _HANGUL))
    if han + kana + hangul > len(_LATIN_WORD.findall(text)):
        return _cjk_language(han, kana, hangul), 1.0
    code, probability = _identifier().classify(text)
    return str(code), float(probability)


def route_language(text: str, language: str) -> str:
    """The language whose rules `text` needs: `language`, unless its script contradicts.

    Chinese, Japanese and Korean characters count like a word each. English in a Chinese row is English, a Chinese text
    in an English row is Chinese, and a name in the other script changes nothing.
    """
    han, kana, hangul = (len(pattern.findall(text)) for pattern in (_HAN, _KANA, _HANGUL))
    latin = len(_LATIN_WORD.findall(text))
    cjk = han + kana + hangul
    if language in ("zh", "ja", "ko"):
        if cjk == 0:
            return _latin_language(text) if _is_prose(text) else language
        own = {"zh": han if kana == 0 else 0, "ja": han + kana, "ko": hangul}[language]
        return language if own and own * 2 >= cjk else _cjk_language(han, kana, hangul)
    return _cjk_language(han, kana, hangul) if cjk > latin else language


def holds_script_of(language: str, text: str) -> bool:
    """Whether a text has characters that Chinese, Japanese or Korean (`language`) is written in."""
    own = {"zh": (_HAN,), "ja": (_HAN, _KANA), "ko": (_HANGUL,)}[language]
    return any(pattern.search(text) for pattern in own)


def _cjk_language(han: int, kana: int, hangul: int) -> str:
    if hangul > han + kana:
        return "ko"
    return "ja" if kana else "zh"


def _is_prose(text: str) -> bool:
    """Whether a text in Latin script is more than names, units, formulas or addresses, which every language borrows."""
    words = [word for word in _LATIN_WORD.findall(ADDRESS.sub(" ", text)) if len(word) > 1]
    return len(words) > 1 or any(len(word) >= _LONG_WORD for word in words)


def _latin_language(text: str) -> str:
    if len(_LATIN_WORD.findall(text)) < _FEW_WORDS:
        return "en"
    return str(_latin_identifier().classify(text)[0])
