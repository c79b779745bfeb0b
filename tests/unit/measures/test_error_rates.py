import jiwer
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elocution.measures.error_rates import (
    EditCounts,
    character_error_rate,
    corpus_error_rate,
    count_edits,
    edits_from_row,
    edits_to_row,
    mean_error_rate,
    phoneme_error_rate,
    pinyin_error_rate,
    word_error_rate,
)

units = st.lists(st.sampled_from("abc"), min_size=1, max_size=8)


@pytest.mark.parametrize(
    ("reference", "hypothesis", "errors"),
    [
        ("the green house", "the green house", EditCounts(0, 0, 0, 3)),
        ("the green house", "the black house", EditCounts(1, 0, 0, 3)),
        ("the green house", "the house", EditCounts(0, 1, 0, 3)),
        ("the green house", "the green old house", EditCounts(0, 0, 1, 3)),
        ("the green house", "green house was", EditCounts(0, 1, 1, 3)),
    ],
)
def test_edits_are_counted_by_kind(reference: str, hypothesis: str, errors: EditCounts) -> None:
    assert word_error_rate(reference, hypothesis) == errors


@pytest.mark.parametrize("nothing", ["", "  "])
def test_s01_an_empty_transcript_deletes_every_word(nothing: str) -> None:
    errors = word_error_rate("hello world", nothing)
    assert errors == EditCounts(0, 2, 0, 2)
    assert errors.rate == 1.0
    assert errors.is_empty_hypothesis


def test_insertions_take_the_rate_above_one() -> None:
    assert word_error_rate("one", "one three six").rate == 2.0


def test_the_rate_of_an_empty_reference_is_undefined() -> None:
    with pytest.raises(ValueError, match="empty reference"):
        word_error_rate(" ", "anything")


def test_the_corpus_rate_weighs_clips_by_their_words() -> None:
    # 1 edit in 1 word and 1 edit in 4 words: 2 / 5, where the mean of the rates would be 0.625.
    assert corpus_error_rate([EditCounts(1, 0, 0, 1), EditCounts(0, 1, 0, 4)]) == pytest.approx(0.4)


def test_the_corpus_rate_of_no_clip_is_undefined() -> None:
    with pytest.raises(ValueError, match="no clip"):
        corpus_error_rate([])


def test_the_mean_rate_counts_every_clip_the_same() -> None:
    # The published number of seed-tts-eval: 1 edit in 1 word and 1 in 4 give (1 + 0.25) / 2.
    assert mean_error_rate([EditCounts(1, 0, 0, 1), EditCounts(0, 1, 0, 4)]) == pytest.approx(0.625)
    with pytest.raises(ValueError, match="no clip"):
        mean_error_rate([])


@given(units, units)
def test_edits_are_those_of_jiwer(reference: list[str], hypothesis: list[str]) -> None:
    theirs = jiwer.process_words(" ".join(reference), " ".join(hypothesis))
    ours = count_edits(reference, hypothesis)
    assert (ours.substitutions, ours.deletions, ours.insertions) == (
        theirs.substitutions,
        theirs.deletions,
        theirs.insertions,
    )
    assert ours.rate == pytest.approx(theirs.wer)
    assert ours.bounded_rate == pytest.approx(theirs.mer)


def test_the_bounded_rate_grows_with_insertions_and_stays_below_one() -> None:
    rates = [count_edits(["a"], ["a"] + ["b"] * extra).bounded_rate for extra in (0, 1, 2, 8)]
    assert rates == pytest.approx([0, 1 / 2, 2 / 3, 8 / 9])


def test_characters_are_counted_without_spaces() -> None:
    assert character_error_rate("ab c", "abc d") == EditCounts(0, 0, 1, 3)


def test_phonemes_come_from_the_function_that_is_given() -> None:
    assert phoneme_error_rate("ab", "ac", list) == EditCounts(1, 0, 0, 2)
    assert phoneme_error_rate("ab", " ", list) == EditCounts(0, 2, 0, 2)
    with pytest.raises(ValueError, match="empty reference"):
        phoneme_error_rate("", "ab", list)


@pytest.mark.parametrize(("tones", "edits"), [(True, 1), (False, 0)])
def test_pinyin_counts_tones_where_asked(tones: bool, edits: int) -> None:
    assert pinyin_error_rate("买 马".split(), "卖 马".split(), tones=tones) == EditCounts(edits, 0, 0, 2)


def test_edits_go_among_other_numbers_and_come_back() -> None:
    edits = {
        "wer": EditCounts(1, 2, 3, reference_units=9),
        "phoneme_error_rate": EditCounts(0, 1, 0, reference_units=14),
    }
    row = edits_to_row(edits)
    assert (row["wer/substitutions"], row["phoneme_error_rate/reference_units"]) == (1, 14)
    assert edits_from_row({"wer": 6 / 9, **row, "f0_hz": 200.0}) == edits
