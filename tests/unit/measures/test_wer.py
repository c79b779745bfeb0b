import pytest

from elocution.measures.wer import WordErrors, corpus_word_error_rate, word_error_rate


@pytest.mark.parametrize(
    ("reference", "hypothesis", "errors"),
    [
        ("the green house", "the green house", WordErrors(0, 0, 0, 3)),
        ("the green house", "the black house", WordErrors(1, 0, 0, 3)),
        ("the green house", "the house", WordErrors(0, 1, 0, 3)),
        ("the green house", "the green old house", WordErrors(0, 0, 1, 3)),
        ("the green house", "green house was", WordErrors(0, 1, 1, 3)),
    ],
)
def test_edits_are_counted_by_kind(reference: str, hypothesis: str, errors: WordErrors) -> None:
    assert word_error_rate(reference, hypothesis) == errors


@pytest.mark.parametrize("nothing", ["", "  "])
def test_s01_an_empty_transcript_deletes_every_word(nothing: str) -> None:
    errors = word_error_rate("hello world", nothing)
    assert errors == WordErrors(0, 2, 0, 2)
    assert errors.rate == 1.0


def test_insertions_take_the_rate_above_one() -> None:
    assert word_error_rate("one", "one three six").rate == 2.0


def test_the_rate_of_an_empty_reference_is_undefined() -> None:
    with pytest.raises(ValueError, match="empty reference"):
        word_error_rate(" ", "anything")


def test_the_corpus_rate_weighs_clips_by_their_words() -> None:
    # 1 edit in 1 word and 1 edit in 4 words: 2 / 5, where the mean of the rates would be 0.625.
    assert corpus_word_error_rate([WordErrors(1, 0, 0, 1), WordErrors(0, 1, 0, 4)]) == pytest.approx(0.4)


def test_the_corpus_rate_of_no_clip_is_undefined() -> None:
    with pytest.raises(ValueError, match="no clip"):
        corpus_word_error_rate([])
