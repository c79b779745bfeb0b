"""Metadata -> the parquet of the published recipe, read back without our code."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from elocution.cli.main import app
from elocution.data.prompts import load_prompts
from elocution.data.recipe import SplitSettings, copy_to_url, prepare_recipe
from elocution.data.recipe_rows import RecipeSettings
from elocution.errors import DataError, MissingDependency, StorageError
from elocution.types import Utterance

pyarrow = pytest.importorskip("pyarrow", reason="needs the extra `data`")
parquet = pytest.importorskip("pyarrow.parquet", reason="needs the extra `data`")

SMALL = SplitSettings(train=4, test=2)


def write(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return path


def rows(count: int = 8, **more: Any) -> list[dict[str, Any]]:
    return [
        {"index": f"SSB{i}", "text": f"今天天气很好{'好' * i}", "speaker": f"s{i % 2}", **more} for i in range(count)
    ]


def read(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = parquet.read_table(path).to_pylist()
    return found


def test_rows_have_the_published_schema(tmp_path: Path) -> None:
    source = write(tmp_path / "aishell-3.jsonl", rows())
    done = prepare_recipe(source, tmp_path / "out", SMALL, RecipeSettings())
    assert (done.train, done.test, done.shared, done.bad) == (4, 2, 0, ())
    schema = parquet.read_schema(tmp_path / "out" / "train.parquet")
    assert schema.names == ["index", "speaker", "data_source", "prompt", "ability", "reward_model", "extra_info"]
    assert schema.field("prompt").type.value_type == pyarrow.struct(
        [("role", pyarrow.string()), ("content", pyarrow.string())]
    )
    assert schema.field("extra_info").type.field("index").type == pyarrow.int64()
    train, test = read(tmp_path / "out" / "train.parquet"), read(tmp_path / "out" / "test.parquet")
    assert train[1] == {
        "index": "SSB1",
        "speaker": "s1",
        "data_source": f"{source}_{source}",
        "prompt": [{"role": "user", "content": "今天天气很好好"}, {"role": "assistant", "content": ""}],
        "ability": "text-to-speech",
        "reward_model": {"style": "rule", "ground_truth": "今天天气很好好"},
        "extra_info": {"split": "train", "index": 1, "text": "今天天气很好好"},
    }
    assert [row["index"] for row in train] == ["SSB0", "SSB1", "SSB2", "SSB3"]  # the first
    assert [row["index"] for row in test] == ["SSB6", "SSB7"]  # the last
    assert [row["extra_info"]["index"] for row in test] == [0, 1]
    assert test[0]["extra_info"]["split"] == "test"


def test_splits_do_not_overlap_where_there_are_too_few_rows_and_may_be_drawn(tmp_path: Path) -> None:
    source = write(tmp_path / "m.jsonl", rows())
    with pytest.raises(DataError, match="has 8 usable rows, no more than the 100 of the test split"):
        prepare_recipe(source, tmp_path / "a", SplitSettings(), RecipeSettings())
    prepare_recipe(source, tmp_path / "b", SplitSettings(test=3), RecipeSettings())
    assert [row["index"] for row in read(tmp_path / "b" / "train.parquet")] == [f"SSB{i}" for i in range(5)]
    drawn = []
    for name, seed in (("c", 1), ("d", 1), ("e", 2)):
        prepare_recipe(source, tmp_path / name, SplitSettings("seeded", test=3, seed=seed), RecipeSettings())
        parts = [[row["index"] for row in read(tmp_path / name / f"{part}.parquet")] for part in ("train", "test")]
        assert sorted(parts[0] + parts[1]) == [f"SSB{i}" for i in range(8)]
        drawn.append(parts)
    assert drawn[0] == drawn[1] != drawn[2]


def test_bad_rows_are_listed_with_their_lines_and_left_out(tmp_path: Path) -> None:
    bad = [
        "{",
        {"no": 1},
        {"text": ""},
        {"text": 7},
        {"text": "?!"},
        {"text": "a", "prompt": []},
        "[1]",
        {"text": "a\x00"},
    ]
    source = write(tmp_path / "m.jsonl", [*rows(4), *bad, *rows(8)[4:]])
    result = CliRunner().invoke(
        app,
        ["data", "prepare", "cosyvoice2", str(source), "--to", str(tmp_path / "out"), "--train", "4", "--test", "2"],
    )
    assert result.exit_code == 0, result.output
    assert "4 rows to train on, 2 to test on, 8 bad" in result.output
    listed = [json.loads(line) for line in (tmp_path / "out" / "rejected.jsonl").read_text().splitlines()]
    assert [row["line"] for row in listed] == list(range(5, 13))
    assert "malformed JSON" in listed[0]["reason"]
    assert listed[1]["reason"] == "the text is missing or empty"
    assert "has the columns prompt, which are written here" in listed[5]["reason"]
    assert len(read(tmp_path / "out" / "train.parquet")) == 4


def test_texts_of_the_test_split_are_not_trained_on(tmp_path: Path) -> None:
    source = write(tmp_path / "m.jsonl", [*rows(4), {"text": "别的", "index": "x", "speaker": "s"}, rows(1)[0]])
    done = prepare_recipe(source, tmp_path / "out", SMALL, RecipeSettings())
    assert (done.train, done.shared) == (3, 1)
    one = write(tmp_path / "one.jsonl", rows(1) * 3)
    with pytest.raises(DataError, match=r"every training row of .* has a text of the test split"):
        prepare_recipe(one, tmp_path / "none", SMALL, RecipeSettings())


def test_a_file_of_its_own_for_testing(tmp_path: Path) -> None:
    source, other = (
        write(tmp_path / "a.jsonl", rows(3)),
        write(tmp_path / "b.jsonl", [{"text": f"句子{i}好" * (i + 1)} for i in range(3)]),
    )
    prepare_recipe(source, tmp_path / "out", SMALL, RecipeSettings(), test_source=other)
    assert len(read(tmp_path / "out" / "train.parquet")) == 3
    test = read(tmp_path / "out" / "test.parquet")
    assert [row["reward_model"]["ground_truth"] for row in test] == ["句子1好句子1好", "句子2好句子2好句子2好"]
    assert test[0]["data_source"] == f"{source}_{other}"


def test_prefixes_are_the_rows_own_speech_and_the_same_again(tmp_path: Path) -> None:
    codes = [i % 6561 for i in range(400)]
    source = write(
        tmp_path / "m.jsonl",
        [*rows(20, code=codes), {"text": "短短的", "code": [1] * 49}, {"text": "坏的码", "code": [6561] * 80}],
    )
    for name in ("a", "b"):
        done = prepare_recipe(source, tmp_path / name, SplitSettings(test=4), RecipeSettings("speech_prefix"))
    assert [row.reason for row in done.bad] == [
        "'code' has 49 codes, a prefix needs 50 so that half of the speech is left",
        f"'code' must be a list of codes from 0 to 6560, found {[6561] * 80!r:.80}",
    ]
    table = read(tmp_path / "a" / "train.parquet")
    assert table == read(tmp_path / "b" / "train.parquet")
    lengths = set()
    for row in table:
        spoken = row["prompt"][1]["content"]
        assert row["extra_info"]["prefix_speech_str"] == spoken
        found = [int(code) for code in re.findall(r"<\|s_(\d+)\|>", spoken)]
        assert found == codes[: len(found)]
        assert 25 <= len(found) <= 125
        lengths.add(len(found))
    assert len(lengths) > 5


def test_voices_stand_before_the_text_and_elocution_reads_them_back(tmp_path: Path) -> None:
    source = write(tmp_path / "m.jsonl", rows(6, prompt_text="你好。", prompt_codes=[5, 6560, 0]))
    prepare_recipe(source, tmp_path / "out", SMALL, RecipeSettings("voice"), carry=False)
    row = read(tmp_path / "out" / "train.parquet")[0]
    assert row["prompt"] == [
        {"role": "user", "content": "你好。今天天气很好"},
        {"role": "assistant", "content": "<|s_5|><|s_6560|><|s_0|>"},
    ]
    assert row["reward_model"]["ground_truth"] == "今天天气很好"
    prompts = load_prompts(
        tmp_path / "out" / "train.parquet", languages=("zh",), on_bad_row="stop", check_text=lambda utterance: None
    )
    assert prompts.utterances[0] == Utterance("train-0", "今天天气很好", "zh")
    silent = write(tmp_path / "n.jsonl", rows(6, prompt_codes=[1]))
    done = prepare_recipe(
        write(tmp_path / "o.jsonl", [*rows(6, prompt_text="好", prompt_codes=[1]), *rows(1, prompt_codes=[1])]),
        tmp_path / "p",
        SMALL,
        RecipeSettings("voice"),
    )
    assert [row.reason for row in done.bad] == ["a voice needs its words: prompt_text is missing or empty"]
    with pytest.raises(DataError, match="has 0 usable rows"):
        prepare_recipe(silent, tmp_path / "q", SMALL, RecipeSettings("voice"))


def test_elocution_trains_on_the_recipes_parquet(tmp_path: Path) -> None:
    prepare_recipe(write(tmp_path / "m.jsonl", rows()), tmp_path / "out", SMALL, RecipeSettings())
    prompts = load_prompts(
        tmp_path / "out" / "test.parquet", languages=("zh",), on_bad_row="stop", check_text=lambda utterance: None
    )
    assert [utterance.id for utterance in prompts.utterances] == ["test-0", "test-1"]
    parquet.write_table(pyarrow.table({"prompt": ["x"]}), tmp_path / "less.parquet")
    with pytest.raises(DataError, match="has no column text; it has prompt"):
        load_prompts(tmp_path / "less.parquet", languages=("zh",), on_bad_row="stop", check_text=lambda utterance: None)


def test_columns_of_several_types_are_one_error(tmp_path: Path) -> None:
    mixed = rows()
    mixed[1]["speaker"] = 7
    source = write(tmp_path / "m.jsonl", mixed)
    with pytest.raises(DataError, match=r"cannot be carried along.*--no-carry"):
        prepare_recipe(source, tmp_path / "out", SMALL, RecipeSettings())
    prepare_recipe(source, tmp_path / "out", SMALL, RecipeSettings(), carry=False)
    assert len(read(tmp_path / "out" / "train.parquet")) == 4


def test_files_are_copied_to_any_url(tmp_path: Path) -> None:
    prepare_recipe(write(tmp_path / "m.jsonl", rows()), tmp_path / "out", SMALL, RecipeSettings())
    copy_to_url(tmp_path / "out", f"file://{tmp_path}/copied/there")
    for name in ("train.parquet", "test.parquet", "rejected.jsonl"):
        assert (tmp_path / "copied" / "there" / name).read_bytes() == (tmp_path / "out" / name).read_bytes()
    with pytest.raises(StorageError, match="cannot copy"):
        copy_to_url(tmp_path / "out", "nonsense://x/y")
    (tmp_path / "file").touch()
    with pytest.raises((StorageError, MissingDependency)):
        copy_to_url(tmp_path / "out", f"file://{tmp_path}/file/below")
