"""Recordings of every kind of source -> codes, with the tiny codec and real speech."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import soundfile
from typer.testing import CliRunner

from elocution.assets import resolve_path
from elocution.cli.main import app
from elocution.codecs import load_codec
from elocution.codecs.tiny import TinyCodec
from elocution.data.clips import open_clips
from elocution.data.round_trip import USUAL_LIKENESS, decode_first, spectral_likeness
from elocution.data.tokenize import TokenizeSettings, tokenize_clips
from elocution.errors import DataError
from elocution.types import Audio

datasets = pytest.importorskip("datasets", reason="needs the extra `data`")
parquet = pytest.importorskip("pyarrow.parquet", reason="needs the extra `data`")

SPEECH = Path(__file__).parents[2] / "data" / "speech"
FILES = sorted(SPEECH.glob("*.flac"))[:5]
CODEC = resolve_path("builtin:tiny-codec")


def settings(**changes: object) -> TokenizeSettings:
    return TokenizeSettings("tiny", CODEC, workers=1, **changes)  # type: ignore[arg-type]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Five clips with a text beside each."""
    place = tmp_path / "clips"
    place.mkdir()
    for file in FILES:
        shutil.copy(file, place)
        (place / f"{file.stem}.txt").write_text(file.stem.replace("-", " ") + "\n")
    return place


def rows_of(output: Path) -> list[dict[str, object]]:
    return [row for path in sorted(output.glob("shard-*.parquet")) for row in parquet.read_table(path).to_pylist()]


def codes_of(file: Path) -> list[int]:
    samples, rate = soundfile.read(file, dtype="float32")
    return load_codec("tiny", CODEC).encode(Audio(samples, rate))[:, 0].tolist()


def test_a_folder_becomes_shards_of_the_codecs_own_codes(folder: Path, tmp_path: Path) -> None:
    heard = []
    done = tokenize_clips(
        open_clips(str(folder)), tmp_path / "out", settings(shard_size=2), progress=lambda *at: heard.append(at)
    )
    rows = rows_of(tmp_path / "out")
    assert len(list((tmp_path / "out").glob("shard-*.parquet"))) == 3
    assert [row["id"] for row in rows] == [file.name for file in FILES]
    assert [row["text"] for row in rows] == [file.stem.replace("-", " ") for file in FILES]
    assert [row["audio_code_ids"] for row in rows] == [codes_of(file) for file in FILES]
    assert done.clips == 5
    assert done.seconds == pytest.approx(sum(soundfile.info(file).duration for file in FILES))
    assert heard[-1] == (5, 5)


def test_manifests_metadata_parquet_and_saved_datasets_give_the_same_codes(folder: Path, tmp_path: Path) -> None:
    texts = [file.stem.replace("-", " ") for file in FILES]
    manifest = folder / "manifest.jsonl"
    manifest.write_text(
        "".join(json.dumps({"audio": file.name, "text": text}) + "\n" for file, text in zip(FILES, texts, strict=True))
    )
    described = tmp_path / "described"
    shutil.copytree(folder, described)
    (described / "metadata.csv").write_text(
        "file_name,transcription\n" + "".join(f"{f.name},{t}\n" for f, t in zip(FILES, texts, strict=True))
    )
    table = datasets.Dataset.from_dict(
        {"audio": [{"bytes": file.read_bytes(), "path": None} for file in FILES], "text": texts}
    )
    table.save_to_disk(tmp_path / "saved")
    (tmp_path / "tables").mkdir()
    table.to_parquet(tmp_path / "tables" / "part.parquet")
    expected = [codes_of(file) for file in FILES]
    for number, source in enumerate((manifest, described, tmp_path / "saved", tmp_path / "tables")):
        output = tmp_path / f"out-{number}"
        tokenize_clips(open_clips(str(source)), output, settings())
        assert [row["audio_code_ids"] for row in rows_of(output)] == expected, source
        assert [row["text"] for row in rows_of(output)] == texts


def test_s80_s81_clips_that_cannot_be_used_are_listed_with_reasons_and_odd_rates_are_resampled(tmp_path: Path) -> None:
    folder = tmp_path / "clips"
    folder.mkdir()
    speech, rate = soundfile.read(FILES[0], dtype="float32")
    clips = {
        "a-good": (speech, rate),
        "b-stereo": (np.stack([speech, speech], axis=1), rate),
        "c-48k": (np.repeat(speech, 3), 3 * rate),
        "d-short": (speech[: rate // 20], rate),
        "e-long": (np.tile(speech, 40)[: 50 * rate], rate),
        "f-nan": (np.full(rate, np.nan, dtype=np.float32), rate),
        "g-none": (speech[:0], rate),
    }
    for name, (samples, sample_rate) in clips.items():
        soundfile.write(folder / f"{name}.wav", samples, sample_rate, subtype="FLOAT")
    (folder / "h-zero.wav").write_bytes(b"")
    (folder / "i-text.wav").write_text("no sound")
    for file in folder.glob("*.wav"):
        file.with_suffix(".txt").write_text("hello")
    (folder / "a-good.txt").with_name("j-absent.txt").write_text("unused")
    done = tokenize_clips(open_clips(str(folder)), tmp_path / "out", settings())
    assert [row["id"] for row in rows_of(tmp_path / "out")] == ["a-good.wav", "b-stereo.wav", "c-48k.wav"]
    good, stereo, fast = (row["audio_code_ids"] for row in rows_of(tmp_path / "out"))
    assert good == stereo
    assert len(fast) == len(good)
    reasons = {row["id"][0]: row["reason"] for row in done.rejected}
    assert set(reasons) == set("defghi")
    assert "0.05 s long" in reasons["d"]
    assert "50.00 s long" in reasons["e"]
    assert "no numbers" in reasons["f"]
    assert "no samples" in reasons["g"]
    assert all("cannot read" in reasons[name] for name in "hi")


def test_a_call_that_was_cut_short_goes_on_after_the_last_whole_shard(folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    tokenize_clips(open_clips(str(folder)), output, settings(shard_size=2))
    whole = {path.name: path.read_bytes() for path in output.glob("shard-*")}
    (output / "shard-00001.parquet").unlink()
    kept = (output / "shard-00000.parquet").stat().st_mtime_ns
    tokenize_clips(open_clips(str(folder)), output, settings(shard_size=2))
    assert {path.name: path.read_bytes() for path in output.glob("shard-*")} == whole
    assert (output / "shard-00000.parquet").stat().st_mtime_ns == kept


def test_codes_of_other_clips_are_not_mixed_in(folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    tokenize_clips(open_clips(str(folder)), output, settings())
    with pytest.raises(DataError, match="max_s differ"):
        tokenize_clips(open_clips(str(folder)), output, settings(max_s=5.0))
    (folder / FILES[0].name).unlink()
    with pytest.raises(DataError, match="clips, ids_sha256 differ"):
        tokenize_clips(open_clips(str(folder)), output, settings())
    with pytest.raises(DataError, match="no folder of codes"):
        tokenize_clips(open_clips(str(folder)), folder, settings())


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"audio": "a.wav"}\n', "row 1 .* has no text"),
        ('{"audio": "a.wav", "text": "a"}\n{"audio": "a.wav", "text": "b"}\n', "two clips .* have the id 'a.wav'"),
        ("{\n", "1 lines"),
        ("", "no rows"),
    ],
)
def test_a_broken_manifest_is_refused(content: str, said: str, tmp_path: Path) -> None:
    manifest = tmp_path / "clips.jsonl"
    manifest.write_text(content)
    with pytest.raises(DataError, match=said):
        open_clips(str(manifest))


def test_sources_that_are_none_are_refused(folder: Path, tmp_path: Path) -> None:
    for source, said in (
        (tmp_path / "absent.jsonl", "no manifest"),
        (tmp_path / "absent", "does not exist"),
        (FILES[0], "neither"),
    ):
        with pytest.raises(DataError, match=said):
            open_clips(str(source))
    (folder / f"{FILES[0].stem}.txt").unlink()
    with pytest.raises(DataError, match="has no text beside it"):
        open_clips(str(folder))
    table = datasets.Dataset.from_dict({"sound": [b""], "text": ["a"]})
    table.to_parquet(tmp_path / "t.parquet")
    with pytest.raises(DataError, match="no column audio; it has sound, text"):
        open_clips(str(tmp_path / "t.parquet"))


def test_the_command_counts_lists_and_ends_with_a_status(folder: Path, tmp_path: Path) -> None:
    (folder / "z.wav").write_text("no sound")
    (folder / "z.txt").write_text("hello")
    arguments = ["data", "tokenize", str(folder), "--output", str(tmp_path / "out"), "--workers", "1"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0
    assert "5 clips" in result.output
    assert "z.wav: cannot read" in result.output
    assert (
        f"{FILES[0].name} as its codes sound: {tmp_path / 'out' / 'decoded.wav'}, likeness of the spectra 0.9"
        in result.output
    )
    assert "warning" not in result.output
    again = CliRunner().invoke(app, [*arguments, "--on-bad-clip", "stop"])
    assert isinstance(again.exception, DataError)


def test_a_codec_that_does_not_give_back_what_it_was_given_is_warned_of(folder: Path, tmp_path: Path) -> None:
    codec = TinyCodec.from_pretrained(CODEC)
    TinyCodec(codec.centroids.flip(0), codec.settings).save_pretrained(tmp_path / "other")
    clips, out = open_clips(str(folder)), tmp_path / "out"
    tokenize_clips(clips, out, settings())
    whole, broken = (decode_first(clips, out, TokenizeSettings("tiny", path)) for path in (CODEC, tmp_path / "other"))
    assert whole is not None
    assert broken is not None
    assert broken.likeness < 0.5 < USUAL_LIKENESS < 0.95 < whole.likeness
    assert soundfile.info(broken.path).duration == pytest.approx(soundfile.info(FILES[0]).duration, abs=0.04)


def test_the_likeness_of_spectra_knows_the_same_sound_at_another_rate_and_tells_noise() -> None:
    samples, rate = soundfile.read(FILES[0], dtype="float32")
    clip = Audio(samples, rate)
    assert spectral_likeness(clip, Audio(np.repeat(samples, 2), 2 * rate)) > 0.9
    noise = np.random.default_rng(0).normal(scale=0.1, size=len(samples)).astype(np.float32)
    assert abs(spectral_likeness(clip, Audio(noise, rate))) < 0.2
    assert spectral_likeness(clip, Audio(np.zeros_like(samples), rate)) == 0.0


def test_a_manifest_may_name_the_voice_and_the_sound_that_are_wanted(folder: Path) -> None:
    manifest = folder / "clips.jsonl"
    row = {"audio": FILES[0].name, "text": "one", "prompt_audio": FILES[1].name, "description": "calm"}
    manifest.write_text(json.dumps(row))
    clip = open_clips(str(manifest))[0]
    assert clip.voice is not None
    assert (clip.voice.audio, clip.description) == (folder / FILES[1].name, "calm")
    for recording, said in (
        ("absent.wav", "there is no file"),
        ("clips.jsonl", "cannot read"),
        (3, "must be a string"),
    ):
        manifest.write_text(json.dumps(row | {"prompt_audio": recording}))
        with pytest.raises(DataError, match=rf"row 1 of .*clips\.jsonl.*prompt_audio.*{said}"):
            open_clips(str(manifest))
