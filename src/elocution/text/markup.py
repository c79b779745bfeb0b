"""What a script holds besides the words: stage directions, SSML, emotion tags, an instruction before the text."""

import re

__all__ = ["directions", "strip_markup"]

_INSTRUCTION = re.compile(r"^.*<\|endofprompt\|>", re.DOTALL)
_ALIAS = re.compile(r"""<sub\b[^<>]*?\balias\s*=\s*(["'])(.*?)\1[^<>]*>.*?</sub\s*>""", re.IGNORECASE | re.DOTALL)
_TAG = re.compile(r"<!--.*?-->|<\|[^<>]*?\|>|</?[A-Za-z][^<>]*>|\[[^\[\]]*\]", re.DOTALL)
_ASIDE = re.compile(r"\(([^()]*)\)|\*([^*\n]+)\*")
_LATIN_EVENTS = re.compile(
    r"\b(?:laugh|chuckl|giggl|sigh|cough|sneez|sniff|sob|cry(?:ing)?\b|cries\b|gasp|breath|inhal|exhal|whisper|shout|scream"
    r"|yell|groan|moan|yawn|hum(?:s|ming)?\b|throat|pauses?\b|silence|music|applau|cheer|snort|gulp|mumbl|sing(?:s|ing)\b"
    r"|beep|lacht|seufz|hust|flüster|rires?\b|soupir|touss|chuchot|risas?\b|suspir|tose\b|susurr)",
    re.IGNORECASE,
)
_CJK_EVENTS = re.compile(
    "笑|叹|嘆|咳|哭|喘|吸气|呼吸|停顿|掌声|音乐|沉默|耳语|低语|ため息|拍手|웃음|웃으며|한숨|기침|박수"
)
_MAX_WORDS, _MAX_CHARACTERS = 3, 8


def strip_markup(text: str) -> str:
    """The words that are to be spoken. Tags in <…> or […] go, what they enclose stays; `<sub alias>` gives its alias.

    Text in (…) or *…* goes only if it is short and names a sound or a manner, like "(sighs)": other asides are spoken.
    Everything before `<|endofprompt|>` is an instruction.
    """
    text = _ALIAS.sub(lambda match: match[2], _INSTRUCTION.sub("", text))
    return _ASIDE.sub(lambda match: " " if _is_direction(match) else match.group(), _TAG.sub(" ", text))


def directions(text: str) -> tuple[str, ...]:
    """The tags and stage directions of a text in their order, without brackets: what an event reward looks for."""
    found = [(match.start(), match.group()) for match in _TAG.finditer(text)]
    found += [(match.start(), match.group()) for match in _ASIDE.finditer(text) if _is_direction(match)]
    return tuple(written.strip("<>[]()*|/ ") for _, written in sorted(found))


def _is_direction(match: re.Match[str]) -> bool:
    aside = match[1] if match[1] is not None else match[2]
    if _LATIN_EVENTS.search(aside):
        return len(aside.split()) <= _MAX_WORDS
    return len(aside) <= _MAX_CHARACTERS and _CJK_EVENTS.search(aside) is not None
