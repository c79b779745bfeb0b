import pytest
from hypothesis import given
from hypothesis import strategies as st

from elocution.text.normalize import normalize


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


@pytest.mark.parametrize("text", ["Hello [laugh] there", "hello (sighs) there", "hello <break time='1s'/> there"])
def test_s23_tags_are_not_words(text: str) -> None:
    assert normalize(text, "en") == "hello there"


@given(st.text(max_size=40))
def test_normalizing_twice_changes_nothing(text: str) -> None:
    once = normalize(text, "en")
    assert normalize(once, "en") == once
