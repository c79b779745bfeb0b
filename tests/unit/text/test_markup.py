import pytest

from elocution.text.markup import directions, strip_markup


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        ("Hello [laugh] there", "Hello there"),
        ("Hello <break time='1s'/> there", "Hello there"),
        ("(sighs) Fine.", "Fine."),
        ("*laughs softly* Fine.", "Fine."),
        ("<|HAPPY|><|zh|>Hello", "Hello"),
        ("<strong>very</strong> good", "very good"),
        ('<speak>the <sub alias="World Wide Web">WWW</sub></speak>', "the World Wide Web"),
        ("Be sad.<|endofprompt|>Hello", "Hello"),
        ("(the child who was crying came home) yes", "(the child who was crying came home) yes"),
        ("(a single one) yes", "(a single one) yes"),
        ("3 < 5 and 7 > 2", "3 < 5 and 7 > 2"),
        ("(叹气)好吧", "好吧"),
        ("(第二版)好吧", "(第二版)好吧"),
    ],
)
def test_s23_tags_and_stage_directions_go_and_asides_stay(text: str, spoken: str) -> None:
    assert " ".join(strip_markup(text).split()) == spoken


def test_s23_directions_are_kept_for_event_rewards() -> None:
    text = "(sighs) Well [laughter] <break time='1s'/> (a big one)"
    assert directions(text) == ("sighs", "laughter", "break time='1s'")
