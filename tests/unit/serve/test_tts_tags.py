import pytest

from elocution.serve.http import RequestError
from elocution.serve.tts_tags import TaggedText, read_tags


def test_an_instruction_is_taken_from_the_start_of_the_text_alone() -> None:
    assert read_tags("${instruction:sad, slow}one ${instruction:x}") == TaggedText("one ${instruction:x}", "sad, slow")
    assert read_tags("one") == TaggedText("one")
    assert read_tags("${instruction:a}b}c") == TaggedText("b}c", "a")


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("${emotion:sad}one", "unknown_tag"),
        ("${instruction:sad one", "unknown_tag"),
        ("${instruction:a}${instruction:b}one", "unknown_tag"),
        ("${instruction:a}${token:25}one", "unknown_tag"),
        ("${token:25}one", "unsupported_tag"),
        ("${token:25}${instruction:a}one", "unsupported_tag"),
        ("${ambient_sound:rain}one", "unsupported_tag"),
    ],
)
def test_other_tags_are_named(text: str, kind: str) -> None:
    with pytest.raises(RequestError) as caught:
        read_tags(text)
    assert caught.value.kind == kind
