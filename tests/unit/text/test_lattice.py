"""Readings: the pair that differs least is found, by an exhaustive search beside it, and told with its reasons."""

from itertools import product

from hypothesis import given
from hypothesis import strategies as st
from rapidfuzz.distance import Levenshtein

from elocution.text.lattice import Decision, Reading, Slot, nearest_readings

words = st.lists(st.sampled_from("abcde"), max_size=3).map(tuple)
slots = st.lists(
    st.lists(words, min_size=1, max_size=3, unique=True).map(
        lambda said: Slot("x", tuple(Reading(one, "rule") for one in said))
    ),
    max_size=4,
)


def slot(*readings: str, rule: str = "") -> Slot:
    return Slot(readings[0], tuple(Reading(tuple(said.split()), rule) for said in readings))


def every_reading(text: list[Slot]) -> set[tuple[str, ...]]:
    return {sum((r.words for r in chosen), ()) for chosen in product(*(one.readings for one in text))}


@given(slots, slots)
def test_no_other_pair_of_readings_has_fewer_edits(reference: list[Slot], hypothesis: list[Slot]) -> None:
    pairing = nearest_readings(reference, hypothesis)
    if not pairing.hypothesis:  # nothing heard is every word of the usual reading deleted
        return
    best = min(
        Levenshtein.distance(one, other) for one in every_reading(reference) for other in every_reading(hypothesis)
    )
    assert pairing.reference in every_reading(reference)
    assert pairing.hypothesis in every_reading(hypothesis)
    assert Levenshtein.distance(pairing.reference, pairing.hypothesis) == best


def test_among_equals_the_usual_reading_is_taken() -> None:
    pairing = nearest_readings([slot("x", "y z"), slot("q")], [slot("w"), slot("q")])
    assert pairing.reference == ("x", "q")


def test_a_decision_names_side_text_reading_and_rule() -> None:
    number = Slot("50", (Reading(("fifty",), "number"), Reading(("five", "zero"), "number")))
    pairing = nearest_readings([slot("five"), slot("zero")], [number])
    assert pairing.decisions == (Decision("hypothesis", "50", "five zero", "number"),)


def test_words_run_together_or_apart_are_taken_as_the_reference_writes_them() -> None:
    apart, joined = [slot("i"), slot("phone")], [slot("iphone")]
    assert nearest_readings(apart, joined).hypothesis == ("i", "phone")
    assert nearest_readings(joined, apart).hypothesis == ("iphone",)
    assert nearest_readings(joined, apart).decisions == (Decision("hypothesis", "i phone", "iphone", "compound"),)


def test_seven_words_are_not_one() -> None:
    pairing = nearest_readings([slot("abcdefg")], [slot(letter) for letter in "abcdefg"])
    assert pairing.hypothesis == tuple("abcdefg")


def test_nothing_heard_leaves_the_usual_reading_of_the_reference() -> None:
    assert nearest_readings([slot("a b c", "d")], []).reference == ("a", "b", "c")
