"""Prompts from parquet, as `data tokenize` writes it and as published sets lay it out."""

from pathlib import Path

import pytest

from elocution.data.prompts import PromptSet, load_prompts
from elocution.errors import DataError
from elocution.types import Utterance

pyarrow = pytest.importorskip("pyarrow", reason="needs the extra `data`")
parquet = pytest.importorskip("pyarrow.parquet", reason="needs the extra `data`")


def write(path: Path, rows: list[dict[str, object]]) -> Path:
    parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    return path


def read(path: Path, *, skip: bool = False, languages: tuple[str, ...] = ("en",)) -> PromptSet:
    return load_prompts(
        path, languages=languages, on_bad_row="skip" if skip else "stop", check_text=lambda utterance: None
    )


def test_a_published_sets_columns_that_are_no_prompt_are_left_alone(tmp_path: Path) -> None:
    rows = [
        {
            "text": text,
            "audio": {"bytes": b"RIFF", "path": "a.wav"},
            "audio_code_ids": [1, 2],
            "audio_code_tokens": "<|s_1|>",
        }
        for text in ("one", "two")
    ]
    assert read(write(tmp_path / "train.parquet", rows)).utterances == (
        Utterance("train-1", "one"),
        Utterance("train-2", "two"),
    )


def test_shards_of_a_folder_are_read_by_name(tmp_path: Path) -> None:
    for shard in (1, 0):
        rows = [{"id": f"c{shard}", "text": f"clip {shard}", "language": "en", "audio_code_ids": [3], "seconds": 0.1}]
        write(tmp_path / f"shard-0000{shard}.parquet", rows)
    assert [utterance.id for utterance in read(tmp_path).utterances] == ["c0", "c1"]


def test_bad_rows_are_named_by_file_and_row(tmp_path: Path) -> None:
    rows = [
        {"text": "one", "id": "a", "language": None},
        {"text": None, "id": "b", "language": "en"},
        {"text": "two", "id": "a", "language": "en"},
        {"text": "three", "id": "c", "language": "de"},
    ]
    path = write(tmp_path / "p.parquet", rows)
    prompts = read(path, skip=True)
    assert [str(row) for row in prompts.skipped] == [
        f"{path}: row 2: the text is missing or empty",
        f"{path}: row 3: the id 'a' is already that of row 1",
        f"{path}: row 4: the language 'de' is not one of data.languages = ['en']",
    ]
    with pytest.raises(DataError, match=r"p\.parquet: row 2: "):
        read(path)


def test_an_id_that_comes_again_in_another_shard_names_the_first(tmp_path: Path) -> None:
    for shard in "ab":
        write(tmp_path / f"{shard}.parquet", [{"text": "one", "id": "same"}])
    with pytest.raises(DataError, match=r"b\.parquet: row 1: the id 'same' is already that of row 1 of a\.parquet"):
        read(tmp_path)


def test_rows_without_a_language_have_the_only_one_that_is_allowed(tmp_path: Path) -> None:
    path = write(tmp_path / "p.parquet", [{"text": "eins"}])
    assert read(path, languages=("de",)).utterances[0].language == "de"


def test_a_table_without_texts_and_a_file_that_is_no_table_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no column text; it has sentence"):
        read(write(tmp_path / "p.parquet", [{"sentence": "one"}]))
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(DataError, match=r"cannot read the prompt file .*broken\.parquet"):
        read(tmp_path / "broken.parquet")
    with pytest.raises(DataError, match=r"cannot read the prompt file .*absent\.parquet"):
        read(tmp_path / "absent.parquet")


def test_a_binary_text_is_a_bad_row(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="row 1: 'text' must be a string"):
        read(write(tmp_path / "p.parquet", [{"text": b"one"}]))
