"""`generate.speak` with the shipped checkpoint and codec, and with a small one that takes an emotion and voices."""

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch

from elocution.assets import resolve_path
from elocution.audio import read_audio
from elocution.codecs.mel import MelSettings
from elocution.codecs.tiny_residual import TinyResidualCodec
from elocution.data.prompt_rows import VoiceSource
from elocution.errors import DataError, EngineError
from elocution.generate import speak
from elocution.measures import load_transcriber
from elocution.testing.policies import small_moss

CLIP = resolve_path("builtin:tiny-clip")
TINY = {
    "model": "builtin:tiny-llasa",
    "family": "llasa",
    "codec": "tiny",
    "codec_path": "builtin:tiny-codec",
    "language": "en",
}


def test_a_sentence_goes_on_where_a_recording_ends_and_the_recording_is_not_heard_again(tmp_path: Path) -> None:
    samples, rate = soundfile.read(CLIP, dtype="float32")
    begun = tmp_path / "begun.wav"
    soundfile.write(begun, samples[: len(samples) // 2], rate)
    recogniser = load_transcriber("pocketsphinx-bigram")
    assert recogniser.transcribe(read_audio(begun)) == "the little brother"
    voice = VoiceSource("the little brother ", begun, None)
    spoken = speak("was young", tmp_path / "said.wav", temperature=0.3, seed=0, voice=voice, **TINY)
    assert recogniser.transcribe(spoken) == "was young"
    assert len(read_audio(tmp_path / "said.wav").samples) == len(spoken.samples)


def test_a_recording_whose_words_the_checkpoint_was_not_taught_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="outside the checkpoint's vocabulary: zebra"):
        speak("one", tmp_path / "x.wav", temperature=0.3, seed=0, voice=VoiceSource("zebra ", CLIP, None), **TINY)


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"emotion": "three"}, "no place for one"),
        ({"voice": VoiceSource("", CLIP, None)}, "needs the words of the recording"),
    ],
)
def test_what_the_prompt_of_a_family_cannot_say_is_refused(tmp_path: Path, asked: dict[str, Any], reason: str) -> None:
    with pytest.raises(DataError, match=reason):
        speak("the brother was young", tmp_path / "x.wav", temperature=0.3, seed=0, **asked, **TINY)


@pytest.fixture(scope="module")
def moss(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("moss")
    policy = small_moss()
    with torch.no_grad():  # any text id is almost as likely as another: clips start sooner or later, and are short
        policy.moss.head_weight(0).mul_(0.001)
        for name, weight in policy.model.named_parameters():
            if name.endswith("o_proj.weight"):  # what was said before, the prompt too, weighs on every code
                weight.mul_(30)
    policy.save_pretrained(str(folder / "moss"))
    books = 0.5 * torch.randn(4, 16, 640, generator=torch.Generator().manual_seed(0))
    books[0] -= 4.0
    TinyResidualCodec(books, MelSettings(frames_per_code=8)).save_pretrained(folder / "codec")
    paths = {"model": f"{folder}/moss", "codec_path": f"{folder}/codec"}
    return {"family": "moss", "codec": "tiny-residual", "language": "en", **paths}


def said(moss: dict[str, str], output: Path, **asked: Any) -> list[bytes]:
    """Two readings, by the first seeds that give speech: the checkpoint's weights are random."""
    readings: list[bytes] = []
    for seed in range(60):
        with contextlib.suppress(EngineError):
            spoken = speak("mary painted", output, temperature=1.0, seed=seed, **asked, **moss)
            readings.append(spoken.samples.tobytes())
        if len(readings) == 2:
            return readings
    raise AssertionError("no two seeds gave speech")


def test_an_emotion_and_a_recording_without_words_change_what_is_said(moss: dict[str, str], tmp_path: Path) -> None:
    plain = said(moss, tmp_path / "plain.wav")
    for name, asked in {"emotion": {"emotion": "three"}, "voice": {"voice": VoiceSource("", CLIP, None)}}.items():
        other = said(moss, tmp_path / f"{name}.wav", **asked)
        assert (tmp_path / f"{name}.wav").is_file()
        assert plain != other


def test_an_emotion_that_the_checkpoint_does_not_know_is_named(moss: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(DataError, match="its emotion 'gloomy': the checkpoint does not know gloomy"):
        speak("mary painted", tmp_path / "x.wav", temperature=1.0, seed=0, emotion="gloomy", **moss)


def recording(path: Path, seconds: float, *, rate: int = 16_000, channels: int = 1, level: float = 0.1) -> VoiceSource:
    samples = np.random.default_rng(0).standard_normal((round(seconds * rate), channels))
    soundfile.write(path, level * samples, rate, subtype="FLOAT")
    return VoiceSource("", path, None)


@pytest.mark.parametrize(
    ("clip", "reason"),
    [
        ({"seconds": 0.05}, "lasts 0.05 s"),
        ({"seconds": 300.0}, "exceed the model's 512 positions"),
        ({"seconds": 1.0, "level": np.nan}, "samples that are no numbers"),
        ({"seconds": 0.0}, "no samples"),
    ],
    ids=["short", "long", "nan", "empty"],
)
def test_s81_a_recording_that_gives_no_voice_is_named(
    moss: dict[str, str], tmp_path: Path, clip: dict[str, Any], reason: str
) -> None:
    voice = recording(tmp_path / "voice.wav", **clip)
    with pytest.raises(DataError, match=reason):
        speak("mary painted", tmp_path / "x.wav", temperature=1.0, seed=0, voice=voice, **moss)
    assert not (tmp_path / "x.wav").exists()


@pytest.mark.parametrize(("rate", "channels"), [(8_000, 1), (44_100, 2)])
def test_s80_a_recording_of_another_rate_or_in_stereo_gives_its_voice(
    moss: dict[str, str], tmp_path: Path, rate: int, channels: int
) -> None:
    said(moss, tmp_path / "x.wav", voice=recording(tmp_path / "voice.wav", 1.0, rate=rate, channels=channels))
