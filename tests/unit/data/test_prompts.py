import re
from pathlib import Path

import pytest

from elocution.data.prompts import PromptSet, check_split, load_prompts
from elocution.errors import DataError
from elocution.types import Utterance


def read(path: Path, content: str | bytes, on_bad_row: str = "stop") -> PromptSet:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return load_prompts(
        path,
        languages=["en"],
        on_bad_row="skip" if on_bad_row == "skip" else "stop",
        check_text=lambda utterance: "unknown word zebra" if "zebra" in utterance.text else None,
    )


def test_good_rows_keep_their_order_and_get_ids(tmp_path: Path) -> None:
    content = '\ufeff{"text": "one"}\r\n\r\n{"id": "b", "text": " two ", "language": "en"}\r\n'
    prompts = read(tmp_path / "p.jsonl", content)
    assert prompts.utterances == (Utterance("p-1", "one"), Utterance("b", "two"))


def test_a_row_may_say_what_the_clip_should_sound_like(tmp_path: Path) -> None:
    row = '{"text": "one", "description": " a happy voice "}'
    (utterance,) = read(tmp_path / "p.jsonl", row).utterances
    assert utterance == Utterance("p-1", "one", description="a happy voice")


BAD_ROWS = [
    ('{"text": "one"', "malformed JSON"),
    ('["one"]', "expected a JSON object, found list"),
    ('{"text": ""}', "missing or empty"),
    ("{}", "missing or empty"),
    ('{"text": "…?!"}', "only punctuation"),
    ('{"text": "one", "language": "xx"}', "language 'xx' is not one of"),
    ('{"text": 5}', "'text' must be a string, found 5"),
    ('{"text": "one", "txet": "two"}', "unknown keys txet"),
    ('{"id": "same", "text": "three"}', "already that of line 1"),
    ('{"text": "a zebra"}', "unknown word zebra"),
    (b'{"text": "\xff"}', "not UTF-8"),
    ('{"text": "one", "description": 3}', "'description' must be a string"),
]


@pytest.mark.parametrize(("row", "reason"), BAD_ROWS)
def test_a_bad_row_stops_with_file_and_line(tmp_path: Path, row: str | bytes, reason: str) -> None:
    raw = row if isinstance(row, bytes) else row.encode()
    with pytest.raises(DataError, match=rf"p\.jsonl:2: .*{reason}"):
        read(tmp_path / "p.jsonl", b'{"id": "same", "text": "one"}\n' + raw + b"\n")


def test_skipping_counts_and_lists_every_bad_row(tmp_path: Path) -> None:
    rows = [row if isinstance(row, bytes) else row.encode() for row, _ in BAD_ROWS]
    prompts = read(tmp_path / "p.jsonl", b"\n".join([b'{"id": "same", "text": "one"}', *rows]), "skip")
    assert [u.text for u in prompts.utterances] == ["one"]
    assert [bad.line for bad in prompts.skipped] == list(range(2, len(BAD_ROWS) + 2))
    for bad, (_, reason) in zip(prompts.skipped, BAD_ROWS, strict=True):
        assert reason in bad.reason


def test_nothing_usable_is_an_error_even_when_skipping(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no usable row"):
        read(tmp_path / "p.jsonl", "{}\n", "skip")
    with pytest.raises(DataError, match="no usable row"):
        read(tmp_path / "p.jsonl", "")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"absent\.jsonl"):
        load_prompts(tmp_path / "absent.jsonl", languages=["en"], on_bad_row="stop", check_text=lambda u: None)


def test_a_text_in_both_files_is_named_with_both_places(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text('{"text": "one"}\n\n{"text": "two", "id": "mine"}\n')
    (tmp_path / "held.jsonl").write_text('{"text": "two"}\n{"text": "nine"}\n')
    train, held_out = (
        load_prompts(tmp_path / name, languages=["en"], on_bad_row="stop", check_text=lambda utterance: None)
        for name in ("train.jsonl", "held.jsonl")
    )
    places = f"{tmp_path / 'held.jsonl'}:1 and {tmp_path / 'train.jsonl'}:3: 'two'"
    with pytest.raises(DataError, match=re.escape(places)):
        check_split(train, held_out, num_train=1, num_held_out=1)
