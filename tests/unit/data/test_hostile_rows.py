"""Rows that a parser, a file name or a tokenizer would choke on are bad rows, not crashes."""

from pathlib import Path

import pytest

from elocution.data.prompts import PromptSet, load_prompts
from elocution.errors import DataError

GOOD = b'{"text": "one"}\n'


def read(path: Path, content: bytes, *, skip: bool = True) -> PromptSet:
    path.write_bytes(content)
    return load_prompts(
        path, languages=["en"], on_bad_row="skip" if skip else "stop", check_text=lambda utterance: None
    )


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (b"[" * 100_000, "unusable JSON"),
        (b'{"text": ' + b"1" * 5000 + b"}", "unusable JSON"),
        (rb'{"text": "a\ud800b"}', "half a surrogate pair"),
        (rb'{"text": "a\u0000b"}', "control character"),
        (b'{"text": "two", "id": "../../elsewhere"}', "cannot be part of a file name"),
        (rb'{"text": "two", "id": "a\nb"}', "cannot be part of a file name"),
        (b'{"text": "two", "id": "' + b"i" * 121 + b'"}', "cannot be part of a file name"),
        (b'{"text": "two", "id": " "}', "the id is empty"),
        (b'{"text": null}', "'text' must be a string, found None"),
        (b'{"text": "two", "text": "three"}', "'text' is given more than once"),
        (b"null", "expected a JSON object, found NoneType"),
    ],
)
def test_the_row_is_skipped_with_its_reason_and_the_good_one_is_kept(tmp_path: Path, row: bytes, reason: str) -> None:
    prompts = read(tmp_path / "p.jsonl", GOOD + row + b"\n")
    assert [utterance.text for utterance in prompts.utterances] == ["one"]
    assert [(bad.line, reason in bad.reason) for bad in prompts.skipped] == [(2, True)], prompts.skipped


def test_a_reason_stays_short_however_long_the_value_is(tmp_path: Path) -> None:
    prompts = read(tmp_path / "p.jsonl", GOOD + b'{"text": [' + b"1," * 5000 + b"1]}\n")
    assert len(prompts.skipped[0].reason) < 200


@pytest.mark.parametrize("content", [bytes(range(256)) * 4, '{"text": "one"}\n'.encode("utf-16")])
def test_a_binary_file_is_refused_in_both_modes(tmp_path: Path, content: bytes) -> None:
    for skip in (True, False):
        with pytest.raises(DataError, match=r"p\.jsonl:1: "):
            read(tmp_path / "p.jsonl", content, skip=skip)


def test_a_folder_is_named_as_unreadable(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot read the prompt file"):
        load_prompts(tmp_path, languages=["en"], on_bad_row="skip", check_text=lambda utterance: None)


def test_rows_that_are_all_bad_are_shown_like_any_others(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no usable row in .*: 2 bad rows:\n.*p\.jsonl:1: .*\n.*p\.jsonl:2: "):
        read(tmp_path / "p.jsonl", b"{}\n5\n")
    with pytest.raises(DataError, match="it is empty"):
        read(tmp_path / "p.jsonl", b"")


def test_ten_bad_rows_are_shown_and_the_rest_counted(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        read(tmp_path / "p.jsonl", GOOD + b"{}\n" * 13, skip=False)
    message = str(caught.value)
    assert message.startswith("13 bad rows in ")
    assert message.count("p.jsonl:") == 10
    assert message.endswith("… and 3 more")
