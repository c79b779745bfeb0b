"""Voices of prompt rows: recordings that are encoded once, and codes that are taken as they are."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from elocution.assets import resolve_path
from elocution.audio import read_audio
from elocution.codecs import Codec, load_codec
from elocution.config.tree import CodecConfig
from elocution.data.prompt_rows import VoiceSource
from elocution.data.prompts import PromptSet, load_prompts
from elocution.data.voice_cache import VoiceCache, open_voice_cache
from elocution.data.voices import VoiceReader
from elocution.errors import DataError

SPEECH = sorted((Path(__file__).parents[2] / "data" / "speech").glob("*.flac"))[0]
CODEC = resolve_path("builtin:tiny-codec")


class Loader:
    """Loads the tiny codec, and counts."""

    def __init__(self) -> None:
        self.loaded = 0

    def __call__(self) -> Codec:
        self.loaded += 1
        return load_codec("tiny", CODEC)


def read(path: Path, rows: list[dict[str, Any]], voices: VoiceReader | None, *, skip: bool = False) -> PromptSet:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return load_prompts(
        path,
        languages=["en"],
        on_bad_row="skip" if skip else "stop",
        check_text=lambda utterance: None,
        voices=voices,
    )


def test_a_recording_is_encoded_once_by_a_codec_that_is_loaded_once(tmp_path: Path) -> None:
    (tmp_path / "voice.flac").write_bytes(SPEECH.read_bytes())
    load = Loader()
    rows = [{"text": text, "prompt_text": "hello ", "prompt_audio": "voice.flac"} for text in ("one", "two")]
    first, second = read(tmp_path / "p.jsonl", rows, VoiceReader(load)).utterances
    assert first.voice is not None
    assert second.voice is not None
    assert first.voice.codes is second.voice.codes
    assert np.array_equal(first.voice.codes, load_codec("tiny", CODEC).encode(read_audio(SPEECH)))
    assert first.voice.text == "hello "
    assert first.voice.audio == tmp_path / "voice.flac"
    assert load.loaded == 1


@pytest.fixture
def cache(tmp_path: Path) -> Callable[[], VoiceCache]:
    """A cache of the tiny codec as a new run would open it."""
    return lambda: open_voice_cache(str(tmp_path / "cache"), CodecConfig())


def test_a_later_run_finds_the_codes_of_the_same_recording_and_loads_no_codec(
    tmp_path: Path, cache: Callable[[], VoiceCache]
) -> None:
    loads = [Loader(), Loader(), Loader()]
    (tmp_path / "one.flac").write_bytes(SPEECH.read_bytes())
    (tmp_path / "copy.flac").write_bytes(SPEECH.read_bytes())
    first = VoiceReader(loads[0], cache()).read(VoiceSource("hello", tmp_path / "one.flac", None))
    again = VoiceReader(loads[1], cache()).read(VoiceSource("hello", tmp_path / "copy.flac", None))
    assert np.array_equal(first.codes, again.codes)
    assert first.codes.dtype == again.codes.dtype
    other = sorted(SPEECH.parent.glob("*.flac"))[1].read_bytes()
    assert not np.array_equal(VoiceReader(loads[2], cache()).read(VoiceSource("hello", other, None)).codes, first.codes)
    assert [load.loaded for load in loads] == [1, 0, 1]


def test_codes_of_another_codec_are_not_taken(tmp_path: Path) -> None:
    shutil.copytree(CODEC, tmp_path / "codec")
    settings = tmp_path / "codec" / "codec.json"
    codec = CodecConfig(path=str(tmp_path / "codec"))
    open_voice_cache(str(tmp_path), codec).put(b"clip", np.ones((3, 1), np.int64))
    assert open_voice_cache(str(tmp_path), codec).get(b"clip") is not None
    assert open_voice_cache(str(tmp_path), codec.model_copy(update={"type": "module:Other"})).get(b"clip") is None
    settings.write_text(settings.read_text().replace("0.99", "0.98"))
    assert open_voice_cache(str(tmp_path), codec).get(b"clip") is None


@pytest.mark.parametrize("damage", [lambda b: b[:-1], lambda b: b"", lambda b: b[:-1] + bytes([b[-1] ^ 1])])
def test_a_damaged_entry_is_found_and_made_again(
    tmp_path: Path, cache: Callable[[], VoiceCache], damage: Callable[[bytes], bytes], caplog: pytest.LogCaptureFixture
) -> None:
    codes = np.arange(5)[:, None]
    cache().put(b"clip", codes)
    (path,) = (tmp_path / "cache").iterdir()
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    assert cache().get(b"clip") is None
    assert f"{path} is damaged; its voice is encoded again" in caplog.text
    cache().put(b"clip", codes)
    assert path.read_bytes() == whole


def test_a_run_goes_on_where_nothing_can_be_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_bytes(b"")
    cache = open_voice_cache(str(tmp_path / "file"), CodecConfig())
    for _ in range(2):
        assert cache.get(b"clip") is None
        cache.put(b"clip", np.ones((1, 1), np.int64))
    assert caplog.text.count("not kept for later runs") == 1


def test_without_a_folder_codes_are_kept_in_the_users_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    open_voice_cache("", CodecConfig()).put(b"clip", np.ones((1, 1), np.int64))
    assert len(list((tmp_path / "elocution" / "voices").iterdir())) == 1


def test_stored_codes_need_no_codec(tmp_path: Path) -> None:
    load = Loader()
    rows = [
        {"text": "one"},
        {"text": "two", "prompt_text": "hello", "prompt_codes": [3, 1, 2]},
        {"text": "three", "prompt_text": "hello", "prompt_codes": [[3], [1], [2]], "prompt_audio": "not/there.wav"},
    ]
    plain, flat, nested = (
        utterance.voice for utterance in read(tmp_path / "p.jsonl", rows, VoiceReader(load)).utterances
    )
    assert plain is None
    assert flat == nested
    assert flat is not None
    assert flat.codes.tolist() == [[3], [1], [2]]
    assert load.loaded == 0


BAD = [
    ({"prompt_text": "hello"}, "neither prompt_audio nor prompt_codes"),
    ({"prompt_audio": "voice.wav"}, "prompt_text is missing or empty"),
    ({"prompt_text": " ", "prompt_codes": [1]}, "prompt_text is missing or empty"),
    ({"prompt_text": "hello", "prompt_codes": []}, "must be a list of codes"),
    ({"prompt_text": "hello", "prompt_codes": [1, True]}, "must be a list of codes"),
    ({"prompt_text": "hello", "prompt_codes": [[1, 2], [3]]}, "must be a list of codes"),
    ({"prompt_text": "hello", "prompt_codes": "<|s_1|>"}, "must be a list of codes"),
    ({"prompt_text": "hello", "prompt_audio": "absent.wav"}, "its voice cannot be used: cannot read .*absent.wav"),
    ({"prompt_text": "hello", "prompt_audio": "empty.wav"}, "its voice cannot be used: cannot read .*empty.wav"),
    ({"prompt_text": "hello", "prompt_audio": "nan.wav"}, "samples that are no numbers"),
    ({"prompt_text": "hello", "prompt_audio": "short.wav"}, "short.wav lasts 0.05 s"),
    ({"prompt_text": "hello", "prompt_audio": 5}, "'prompt_audio' must be a string"),
]


@pytest.mark.parametrize("encoded", [True, False])
def test_s81_a_voice_that_cannot_be_used_is_a_bad_row(tmp_path: Path, encoded: bool) -> None:
    (tmp_path / "empty.wav").write_bytes(b"")
    soundfile.write(tmp_path / "short.wav", np.ones(800, np.float32), 16_000)
    soundfile.write(tmp_path / "nan.wav", np.full(8000, np.nan, np.float32), 16_000, subtype="FLOAT")
    rows = [{"text": "good"}, *({"text": "one", **row} for row, _ in BAD)]
    prompts = read(tmp_path / "p.jsonl", rows, VoiceReader(Loader()) if encoded else None, skip=True)
    assert len(prompts.skipped) == len(BAD)
    for bad, (_, reason) in zip(prompts.skipped, BAD, strict=True):
        with pytest.raises(DataError, match=reason):
            raise DataError(bad.reason)


def test_recordings_in_a_table_may_be_bytes_or_names(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="needs the extra `data`")
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs the extra `data`")
    (tmp_path / "voice.flac").write_bytes(SPEECH.read_bytes())
    audio = [{"bytes": SPEECH.read_bytes(), "path": None}, {"bytes": None, "path": "voice.flac"}, None]
    rows = [
        {"text": f"clip {index}", "prompt_text": "hello" if sound else None, "prompt_audio": sound}
        for index, sound in enumerate(audio)
    ]
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "p.parquet")
    found = load_prompts(
        tmp_path / "p.parquet",
        languages=["en"],
        on_bad_row="stop",
        check_text=lambda utterance: None,
        voices=VoiceReader(Loader()),
    )
    one, other, none = (utterance.voice for utterance in found.utterances)
    assert one == other
    assert one is not None
    assert none is None
