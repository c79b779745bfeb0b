"""Made-up transcripts: stock phrases in seven languages, loops, and texts that hold either by themselves."""

import pytest

from elocution.measures.hallucination import STOCK_PHRASES, is_hallucination, longest_loop, stock_phrase_in

TEXTS = {
    "en": "the green house",
    "zh": "今天天气很好",
    "ja": "今日は晴れです",
    "ko": "오늘은 맑습니다",
    "de": "das grüne Haus",
    "fr": "la maison verte",
    "es": "la casa verde",
}


@pytest.mark.parametrize(
    ("units", "phrase", "times"),
    [
        ("", "", 0),
        ("a b c", "a", 1),
        ("a b a b a b c", "a b", 3),
        ("x a a a a y", "a", 4),
        ("a a b b b", "b", 3),
        ("a b c a b c", "a b c", 2),
        ("a b x a b x a b", "a b x", 2),
    ],
)
def test_the_loop_is_the_phrase_said_most_often_in_a_row(units: str, phrase: str, times: int) -> None:
    assert longest_loop(units.split()) == (tuple(phrase.split()), times)


def test_a_loop_of_a_phrase_that_is_too_long_is_none() -> None:
    assert longest_loop([*"abcd"] * 3, longest=3) == (("a",), 1)
    assert longest_loop([*"abcd"] * 3, longest=4) == (tuple("abcd"), 3)


@pytest.mark.parametrize(("language", "phrase"), [(name, one) for name, own in STOCK_PHRASES.items() for one in own])
def test_s06_every_stock_phrase_is_found_in_speech_of_every_language_unless_the_text_holds_it(
    language: str, phrase: str
) -> None:
    for spoken, text in TEXTS.items():
        assert is_hallucination(phrase, text, spoken), spoken
    assert stock_phrase_in(phrase, phrase) is None


@pytest.mark.parametrize("language", sorted(TEXTS))
def test_what_should_be_said_is_no_hallucination(language: str) -> None:
    assert not is_hallucination(TEXTS[language], TEXTS[language], language)
    assert not is_hallucination("", TEXTS[language], language)


def test_a_phrase_inside_a_word_is_another_word() -> None:
    assert stock_phrase_in("he unlike and subscribed", "x") is None


@pytest.mark.parametrize(
    ("transcript", "text", "expected"),
    [
        ("the the the house", "the house", True),
        ("the the house", "the house", False),
        ("no no no", "no no no", False),
        ("no no no no no", "no no no", True),
        ("a green house a green house a green house", "a green house", True),
    ],
)
def test_a_loop_counts_where_the_text_has_it_fewer_times(transcript: str, text: str, expected: bool) -> None:
    assert is_hallucination(transcript, text, "en") is expected
