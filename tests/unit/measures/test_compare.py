"""Comparisons of texts as spoken and by the strict public rule, side by side."""

import json
import re
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spoken_pairs import PAIRS, Pair

from elocution.errors import Unverbalizable
from elocution.measures.compare import Unit, compare, compare_phonemes, compare_seed_tts
from elocution.measures.error_rates import EditCounts
from elocution.text.markup import strip_markup


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: f"{pair.language}-{pair.reference}-{pair.hypothesis}")
def test_s18_s19_s21_s22_s23_texts_are_equal_where_they_sound_so(pair: Pair) -> None:
    for reference, hypothesis in ((pair.reference, pair.hypothesis), (pair.hypothesis, pair.reference)):
        compared = compare(reference, hypothesis, pair.language)
        assert (compared.counts.edits == 0) == pair.is_equal, (pair.reason, compared.row())
        assert compare(reference, reference, pair.language).counts.edits == 0


SAID_OUT = [pair for pair in PAIRS if pair.is_equal and not re.search("[0-9]", pair.hypothesis)]


@pytest.mark.parametrize("language", dict.fromkeys(pair.language for pair in PAIRS))
def test_s18_the_words_of_a_number_are_not_those_of_a_number_with_another_digit(language: str) -> None:
    tried = 0
    for pair in SAID_OUT:
        reference = strip_markup(pair.reference)
        for digit in re.finditer("[0-9]", reference if pair.language == language else ""):
            other = str((int(digit.group()) + 3) % 10)
            changed = reference[: digit.start()] + other + reference[digit.end() :]
            assert compare(changed, pair.hypothesis, language).counts.edits > 0, (changed, pair.hypothesis)
            tried += 1
    assert tried > 30


def test_s18_the_strict_protocol_keeps_the_error_that_the_spoken_comparison_forgives() -> None:
    spoken = compare("fifty turns", "50 turns", "en")
    strict = compare_seed_tts("fifty turns", "50 turns", "en")
    assert (spoken.counts.rate, strict.counts.rate) == (0.0, 0.5)
    assert (spoken.normalizer, strict.normalizer) == ("spoken-2", "seed-tts-1")


def test_the_decisions_say_which_rule_made_texts_equal() -> None:
    row = compare("打开iPhone15", "打开i phone十五", "zh").row()
    assert row["decisions"] == ["reference: 15 → 十 五 (number)", "hypothesis: i phone → iphone (compound)"]
    assert json.loads(json.dumps(row)) == row


def test_s22_english_in_a_chinese_row_is_compared_as_english_and_says_so() -> None:
    compared = compare("The weather is nice", "the weather was nice", "zh", unit=Unit.TONED_PINYIN)
    assert (compared.language, compared.requested_language, compared.unit) == ("en", "zh", Unit.NATIVE)
    assert compared.counts == EditCounts(1, 0, 0, 4)


def test_s19_a_latin_text_that_was_heard_in_chinese_is_compared_as_chinese() -> None:
    compared = compare("iPhone 15 Pro", "iphone十五pro", "zh", unit=Unit.TONED_PINYIN)
    assert (compared.language, compared.unit) == ("zh", Unit.TONED_PINYIN)
    assert compared.counts == EditCounts(0, 0, 0, 4)
    assert compare("iPhone 15 Pro", "十五号在", "ko").language == "en"


@pytest.mark.parametrize("text", ["…", "😀", "∫ f"])
def test_s21_a_reference_that_cannot_be_spoken_is_refused(text: str) -> None:
    with pytest.raises(Unverbalizable, match="unverbalizable"):
        compare(text, "anything", "en")


def test_the_strict_protocol_refuses_a_reference_of_punctuation() -> None:
    with pytest.raises(Unverbalizable, match="only punctuation"):
        compare_seed_tts("…?!", "anything", "en")


@pytest.mark.parametrize("heard", ["", "  ", "。。。", "[BLANK_AUDIO]", "😀"])
def test_s01_nothing_heard_deletes_every_unit(heard: str) -> None:
    for unit in (Unit.NATIVE, Unit.CHARACTER, Unit.PINYIN, Unit.TONED_PINYIN):
        compared = compare("今天50度", heard, "zh", unit=unit)
        assert compared.counts == EditCounts(0, 5, 0, 5)
        assert compared.row()["empty_hypothesis"] is True


@pytest.mark.parametrize(
    ("reference", "hypothesis", "native", "plain", "toned"),
    [
        ("他来了", "她来了", 1, 0, 0),  # homophones
        ("买马", "卖马", 1, 0, 1),  # mai3 and mai4
        ("一个", "意个", 1, 0, 1),  # yi2 by sandhi, yi4
        ("好吧", "好八", 1, 0, 1),  # ba5, ba1
        ("这是ATM", "这是ATN", 1, 1, 1),
        ("50个", "五十个", 0, 0, 0),
    ],
)
def test_s19_pinyin_forgives_homophones_and_tones(
    reference: str, hypothesis: str, native: int, plain: int, toned: int
) -> None:
    edits = [
        compare(reference, hypothesis, "zh", unit=unit).counts.edits
        for unit in (Unit.NATIVE, Unit.PINYIN, Unit.TONED_PINYIN)
    ]
    assert edits == [native, plain, toned]


def test_a_listed_reading_of_a_polyphone_counts_only_where_asked() -> None:
    # 行走 is xing2 zou3; 航 is hang2, which the dictionary lists for 行 too.
    assert compare("行走", "航走", "zh", unit=Unit.PINYIN).counts.edits == 1
    accepted = compare("行走", "航走", "zh", unit=Unit.PINYIN, polyphones=True)
    assert accepted.counts.edits == 0
    assert accepted.row()["decisions"] == ["reference: 行 → hang (polyphone)"]
    assert compare("行走", "飞走", "zh", unit=Unit.PINYIN, polyphones=True).counts.edits == 1


def test_characters_leave_spaces_out() -> None:
    assert compare("the cat", "the car", "en", unit=Unit.CHARACTER).counts == EditCounts(1, 0, 0, 6)


def test_phonemes_are_those_of_the_reading_that_was_heard() -> None:
    compared = compare_phonemes("50 cats", "fifty hats", "en", lambda text: [a + b for a, b in pairwise(text)])
    # "fifty cats" and "fifty hats": the pairs " c" and "ca" differ from " h" and "ha".
    assert compared.counts == EditCounts(2, 0, 0, 9)
    assert compared.unit is Unit.PHONEME
    with pytest.raises(ValueError, match="compare_phonemes"):
        compare("a cat", "a cat", "en", unit=Unit.PHONEME)


@settings(deadline=None)  # the first call loads dictionaries
@given(st.sampled_from(PAIRS), st.sampled_from(PAIRS))
def test_the_rates_of_any_two_texts_are_numbers_in_their_ranges(one: Pair, other: Pair) -> None:
    counts = compare(one.reference, other.hypothesis, one.language).counts
    assert counts.rate >= 0
    assert 0 <= counts.bounded_rate <= min(1, counts.rate)
