"""The reward recogniser's dictionary and bigram, and that the shipped ones are what the builder makes."""

from pathlib import Path

import pytest

import elocution.measures.pocketsphinx as shipped_with
from elocution.errors import DataError
from elocution.tiny.recogniser import bigram_arpa, dictionary_of
from elocution.tiny.sentences import WORDS, draw_sentences

SHIPPED = Path(shipped_with.__file__).parents[1] / "assets" / "tiny" / "recogniser"


def _entries(arpa: str, order: int) -> dict[tuple[str, ...], tuple[float, float]]:
    """Words -> (probability, back-off weight)."""
    section = arpa.split(f"\\{order}-grams:\n")[1].split("\n\n")[0]
    rows = [line.split() for line in section.splitlines()]
    return {
        tuple(row[1 : 1 + order]): (10 ** float(row[0]), 10 ** float(row[1 + order]) if len(row) > 1 + order else 1.0)
        for row in rows
    }


def test_every_word_may_follow_every_word_and_probabilities_add_up() -> None:
    words = ["one", "three", "six"]
    arpa = bigram_arpa(words, ["one three", "one three six", "six"])
    singles, pairs = _entries(arpa, 1), _entries(arpa, 2)
    for history in ["<s>", *words]:
        following = [
            pairs[history, word][0] if (history, word) in pairs else singles[(history,)][1] * singles[(word,)][0]
            for word in [*words, "</s>"]
        ]
        assert min(following) > 0
        assert sum(following) == pytest.approx(1.0, abs=1e-3)


def test_seen_pairs_keep_their_counts_less_the_discount() -> None:
    pairs = _entries(bigram_arpa(["one", "three"], ["one three", "one one"]), 2)
    # After "one" come "three", "one" and the end, once each: (1 - 0.5) / 3.
    assert pairs["one", "three"][0] == pytest.approx(0.5 / 3, abs=1e-4)
    assert pairs["<s>", "one"][0] == pytest.approx(1.5 / 2, abs=1e-4)


def test_the_dictionary_has_every_pronunciation() -> None:
    assert dictionary_of(["the"]).splitlines() == ["the DH AH", "the(2) DH IY"]


def test_a_word_without_pronunciation_is_named() -> None:
    with pytest.raises(DataError, match="qwrtz"):
        dictionary_of(["the", "qwrtz"])


def test_the_shipped_recogniser_is_what_the_builder_makes() -> None:
    taught = draw_sentences(20_000, seed=2026)[:17_400]
    assert (SHIPPED / "words.dict").read_text(encoding="utf-8") == dictionary_of(WORDS)
    assert (SHIPPED / "bigram.arpa").read_text(encoding="utf-8") == bigram_arpa(WORDS, taught)
