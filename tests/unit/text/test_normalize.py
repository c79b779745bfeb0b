"""The reading of texts: what stays as it was, laws that hold for any text, and numbers in words in each language."""

import json
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elocution.assets import resolve_path
from elocution.text import chinese, english, french, german, japanese, korean, spanish
from elocution.text.lattice import first_readings
from elocution.text.normalize import NORMALIZED_LANGUAGES, normalize, pair_readings, read, why_unverbalizable

INTEGERS = {
    "en": english.integer_readings,
    "zh": chinese.integer_readings,
    "ja": japanese.integer_readings,
    "ko": korean.integer_readings,
    "de": german.integer_readings,
    "fr": french.integer_readings,
    "es": spanish.integer_readings,
}
UNTIMED = settings(deadline=None)  # the first call loads dictionaries
languages = st.sampled_from(NORMALIZED_LANGUAGES)
# Letters, digits and symbols of every rule, so that random texts hit them.
texts = st.one_of(
    st.text(max_size=40),
    st.text(alphabet="0123456789 .,:/-+=%$€£¥@#^²½°ampkgºuhr年月日点第一零中国あアー한국éßñ'’()[]<>", max_size=30),
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The  winter,\tvisited: the LADY!", "the winter visited the lady"),
        ("Don’t 'quote' me", "don't quote me"),
        ("well-known", "well known"),
        ("…?!", ""),
        ("café Ünder", "café ünder"),
        ("", ""),
    ],
)
def test_case_punctuation_and_space_are_dropped(text: str, words: str) -> None:
    assert normalize(text, "en") == words


def test_the_sentences_of_the_tiny_recipe_are_their_own_reading() -> None:
    for name in ("builtin:tiny-train", "builtin:tiny-held-out"):
        rows = resolve_path(name).read_text(encoding="utf-8").splitlines()
        sentences = [json.loads(row)["text"] for row in rows]
        assert len(sentences) > 50
        for sentence in sentences:
            assert normalize(sentence, "en") == sentence
            assert all(len(slot.readings) == 1 for slot in read(sentence, "en"))


@UNTIMED
@given(texts, languages)
def test_normalizing_twice_changes_nothing(text: str, language: str) -> None:
    once = normalize(text, language)
    assert normalize(once, language) == once


@UNTIMED
@given(texts, languages)
def test_a_normalized_text_is_lower_case_words_of_letters(text: str, language: str) -> None:
    once = normalize(text, language)
    assert once == " ".join(once.split())
    assert not any(character.isdecimal() for character in once)
    assert all(unicodedata.category(character)[0] in "LNM" or character in " '" for character in once)


@settings(max_examples=60, deadline=None)
@given(texts, texts, languages)
def test_equality_of_two_texts_does_not_depend_on_their_order(one: str, other: str, language: str) -> None:
    there, back = pair_readings(one, other, language), pair_readings(other, one, language)
    if normalize(one, language) and normalize(other, language):
        assert (there.reference == there.hypothesis) == (back.reference == back.hypothesis)


@UNTIMED
@given(texts, languages)
def test_a_text_equals_itself_and_its_usual_reading(text: str, language: str) -> None:
    assert (pairing := pair_readings(text, text, language)).reference == pairing.hypothesis
    usual = pair_readings(text, normalize(text, language), language)
    assert usual.reference == usual.hypothesis == first_readings(read(text, language))


@pytest.mark.parametrize("language", NORMALIZED_LANGUAGES)
@UNTIMED
@given(number=st.one_of(st.integers(0, 3000), st.integers(0, 10**12)))
def test_an_integer_in_digits_equals_every_way_to_say_it(language: str, number: int) -> None:
    for said in INTEGERS[language](str(number)):
        pairing = pair_readings(str(number), said, language)
        assert pairing.reference == pairing.hypothesis, said


@pytest.mark.parametrize("language", NORMALIZED_LANGUAGES)
@UNTIMED
@given(one=st.integers(0, 10**6), other=st.integers(0, 10**6))
def test_different_integers_have_no_full_reading_in_common(language: str, one: int, other: int) -> None:
    if one != other:
        assert INTEGERS[language](str(one))[0] not in INTEGERS[language](str(other))[:1]


@pytest.mark.parametrize(
    ("text", "language", "reason"),
    [
        ("…", "en", "nothing to speak"),
        ("😀🎉", "zh", "nothing to speak"),
        ("[laugh]", "en", "nothing to speak"),
        ("∫ f(x) dx", "en", "no reading for '∫'"),
        ("x ∈ A", "zh", "no reading for '∈'"),
        ("он купил 5 книг", "ru", "no rules for numbers in 'ru'"),
    ],
)
def test_s21_a_text_without_a_reading_is_unverbalizable_for_a_reason(text: str, language: str, reason: str) -> None:
    answer = why_unverbalizable(text, language)
    assert answer is not None
    assert answer.startswith("unverbalizable: ")
    assert reason in answer


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Hello 😀", "en"),
        ("5 + 8 = 13", "en"),
        ("a → b", "en"),
        ("он купил книги", "ru"),
        ("50", "zh"),
        ("Type 2", "zh"),
    ],
)
def test_a_text_with_a_reading_is_not_refused(text: str, language: str) -> None:
    assert why_unverbalizable(text, language) is None


def test_a_language_without_rules_keeps_words_and_digits() -> None:
    assert normalize("Он купил 5 книг!", "ru") == "он купил 5 книг"
