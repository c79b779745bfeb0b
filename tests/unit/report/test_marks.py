from elocution.report.marks import Mark, mark_words


def test_each_kind_of_edit_is_marked_in_the_order_of_speech() -> None:
    assert mark_words("the doctor visited the old school today", "the daughter visited the big old school", "en") == [
        Mark("equal", "the", "the"),
        Mark("replaced", "doctor", "daughter"),
        Mark("equal", "visited the", "visited the"),
        Mark("inserted", "", "big"),
        Mark("equal", "old school", "old school"),
        Mark("deleted", "today", ""),
    ]


def test_spellings_that_sound_alike_are_right() -> None:
    assert [mark.kind for mark in mark_words("room 12", "room twelve", "en")] == ["equal"]


def test_characters_are_the_units_of_chinese() -> None:
    assert [(mark.kind, mark.wanted) for mark in mark_words("今天天气好", "今天气好", "zh")].count(
        ("deleted", "天")
    ) == 1


def test_what_cannot_be_aligned_is_shown_as_it_is() -> None:
    assert mark_words("the doctor", "a doctor", None) == [Mark("equal", "", "a doctor")]
    assert mark_words("!?", "a doctor", "en") == [Mark("equal", "", "a doctor")]
