"""Readers of evaluation sets, on small copies of the layouts that the published sets have."""

import json
import shutil
from pathlib import Path

import pytest

from elocution.errors import DataError
from elocution.eval.overlap import leave_out_trained
from elocution.eval.sets import open_eval_set

SPEECH = Path(__file__).parents[2] / "data" / "speech"
CLIP = next(SPEECH.glob("*.flac"))


def place_clip(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(CLIP, path)


@pytest.fixture
def meta(tmp_path: Path) -> Path:
    for name in ("one", "two", "three"):
        place_clip(tmp_path / "en" / "prompt-wavs" / f"{name}.wav")
    path = tmp_path / "en" / "meta.lst"
    path.write_text(
        "a|Get it done.\n"
        "b.wav|It was fine.|prompt-wavs/one.wav\n"
        "c|He said so.|prompt-wavs/two.wav|Nobody came.\n"
        "\n"
        "d|He said so.|prompt-wavs/three.wav|It rained.|wavs/d.wav"
    )
    return path


def test_lines_of_two_to_five_fields_are_read_and_the_folder_names_the_language(meta: Path) -> None:
    found = open_eval_set(str(meta.parent))
    assert (found.name, found.kind, found.languages) == ("en-meta", "seed-tts", ("en",))
    assert [(item.id, item.text, item.prompt_text) for item in found.items] == [
        ("a", "Get it done.", ""),
        ("b", "It was fine.", ""),
        ("c", "Nobody came.", "He said so."),
        ("d", "It rained.", "He said so."),
    ]
    assert [item.reference and item.reference.name for item in found.items] == [None, "one.wav", "two.wav", "three.wav"]
    # Without the words of the recording a policy cannot take its voice; likeness can still be measured.
    assert [item.voice is not None for item in found.items] == [False, False, True, True]
    assert found.items[3].recording == meta.parent / "wavs" / "d.wav"


def test_hard_cases_are_a_list_like_any_other(tmp_path: Path) -> None:
    path = tmp_path / "zh" / "hardcase.lst"
    path.parent.mkdir()
    path.write_text("x|四是四，十是十\n", encoding="utf-8")
    found = open_eval_set(str(path))
    assert (found.name, found.languages, found.items[0].text) == ("zh-hardcase", ("zh",), "四是四，十是十")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a\n", "meta.lst:1: 1 fields, expected id|text"),
        ("a|b|c|d|e|f\n", "meta.lst:1: 6 fields"),
        ("a|text\na|other\n", "two items of .* have the id 'a'"),
        ("a| \n", "the text of 'a'"),
        ("a/b|text\n", "cannot be part of a file name"),
        ("", "has no items"),
        ("a|p|gone.wav|text\nb|text\n", "1 of 2 prompt recordings are there, 1 are missing: a "),
    ],
)
def test_a_bad_list_is_named_with_its_line_and_missing_recordings_are_counted(
    tmp_path: Path, content: str, message: str
) -> None:
    path = tmp_path / "en" / "meta.lst"
    path.parent.mkdir()
    path.write_text(content)
    with pytest.raises(DataError, match=message):
        open_eval_set(str(path))


def test_a_list_of_no_known_language_needs_to_be_told(tmp_path: Path) -> None:
    path = tmp_path / "mine.lst"
    path.write_text("a|text\n")
    with pytest.raises(DataError, match="--language"):
        open_eval_set(str(path))
    assert open_eval_set(str(path), language="en").items[0].language == "en"


def kaldi(root: Path, name: str) -> Path:
    folder = root / "data" / "zero_shot" / name
    for number in (1, 2):
        place_clip(folder / "waveform" / f"prompt_audio_{number}.wav")
    (folder / "text").write_text('uttid_1 "Quoted, it stays."\nuttid_2 It rained.\n')
    (folder / "prompt_text").write_text("uttid_2 Second.\nuttid_1 First one.\n")
    # As published: paths from the top of the repository, with a doubled slash.
    (folder / "prompt_wav.scp").write_text(
        "".join(f"uttid_{n} data/zero_shot//{name}/waveform/prompt_audio_{n}.wav\n" for n in (1, 2))
    )
    return folder


@pytest.mark.parametrize(("name", "language"), [("hard_zh", "zh"), ("to_en", "en"), ("ja", "ja")])
def test_kaldi_folders_find_prompts_from_the_top_of_the_repository(tmp_path: Path, name: str, language: str) -> None:
    found = open_eval_set(str(kaldi(tmp_path, name)))
    assert (found.name, found.kind, found.languages) == (f"zero_shot-{name}", "cv3-eval", (language,))
    assert [item.text for item in found.items] == ['"Quoted, it stays."', "It rained."]
    assert [item.prompt_text for item in found.items] == ["First one.", "Second."]
    assert all(item.reference and item.reference.is_file() for item in found.items)


def test_an_utterance_without_prompt_or_recording_is_an_error(tmp_path: Path) -> None:
    folder = kaldi(tmp_path, "en")
    (folder / "waveform" / "prompt_audio_2.wav").unlink()
    with pytest.raises(DataError, match="1 of 2 prompt recordings are there, 1 are missing: uttid_2"):
        open_eval_set(str(folder))
    (folder / "prompt_text").write_text("uttid_1 First one.\n")
    with pytest.raises(DataError, match="prompt_text lacks 1 of 2 utterances, for example 'uttid_2'"):
        open_eval_set(str(folder))


def test_libritts_items_are_asked_for_in_the_voice_of_the_speakers_next_recording(tmp_path: Path) -> None:
    for name, text in (("7_1_a", "one two"), ("7_1_b", "three"), ("7_2_c", "four"), ("9_1_d", "alone")):
        place_clip(tmp_path / name.split("_")[0] / f"{name}.wav")
        (tmp_path / name.split("_")[0] / f"{name}.normalized.txt").write_text(f"{text}\n")
    found = open_eval_set(str(tmp_path))
    assert found.kind == "libritts"
    assert [(item.id, item.prompt_text) for item in found.items] == [
        ("7_1_a", "three"),
        ("7_1_b", "four"),
        ("7_2_c", "one two"),
        ("9_1_d", ""),
    ]
    (tmp_path / "7" / "7_1_b.wav").unlink()
    with pytest.raises(DataError, match="3 of 4 recordings have their words beside them"):
        open_eval_set(str(tmp_path))


def test_manifests_may_mix_languages_and_every_bad_row_is_named(tmp_path: Path) -> None:
    place_clip(tmp_path / "voice.flac")
    rows = [
        {"text": "fifty turns", "id": "a"},
        {"text": "你好", "language": "zh", "prompt_text": "hi", "prompt_audio": "voice.flac"},
    ]
    path = tmp_path / "mixed.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = open_eval_set(str(path))
    assert [(item.id, item.language) for item in found.items] == [("a", "en"), ("mixed-2", "zh")]
    assert found.items[1].voice is not None
    path.write_text('{"text": ""}\n{"texts": "a"}\n')
    with pytest.raises(DataError, match=r"2 bad rows in .*mixed.jsonl:1: the text is missing.*:2: unknown keys texts"):
        open_eval_set(str(path))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: None, "there is no evaluation set"),
        (lambda path: path.mkdir(), "no meta.lst, text"),
        (lambda path: path.write_text("x"), "expected a .lst, .jsonl or .parquet"),
    ],
)
def test_what_is_no_set_is_refused(tmp_path: Path, make: object, message: str) -> None:
    path = tmp_path / "it.txt"
    make(path)  # type: ignore[operator]
    with pytest.raises(DataError, match=message):
        open_eval_set(str(path))


def test_the_digest_follows_texts_and_voices(meta: Path) -> None:
    before = open_eval_set(str(meta)).digest
    assert open_eval_set(str(meta)).digest == before
    meta.write_text(meta.read_text().replace("Nobody", "Somebody"))
    assert open_eval_set(str(meta)).digest != before


def test_texts_of_the_training_prompts_are_left_out_and_counted(meta: Path) -> None:
    found = open_eval_set(str(meta))
    trained = [("nobody CAME", "en"), ("it rained 50 times", "en")]
    rest, overlap = leave_out_trained(found, trained)
    assert [item.id for item in rest.items] == ["a", "b", "d"]
    assert overlap.row() == {"training_texts": 2, "overlapping": 1, "left_out": True, "examples": ["c"]}
    kept, overlap = leave_out_trained(found, trained, keep=True)
    assert kept == found
    assert (overlap.ids, overlap.are_left_out) == (("c",), False)
