import base64
import io
from pathlib import Path

import numpy as np
import pytest
import soundfile

from elocution.assets import resolve_path
from elocution.codecs import load_codec
from elocution.serve.http import RequestError
from elocution.serve.tts_references import ReferenceLimits, References

CODEC = load_codec("tiny", resolve_path("builtin:tiny-codec"))


def recording(seconds: float = 0.5, rate: int = 16_000, channels: int = 1, kind: str = "WAV") -> bytes:
    count = round(seconds * rate)
    tone = 0.3 * np.sin(np.arange(count) / rate * 2 * np.pi * 220)
    buffer = io.BytesIO()
    soundfile.write(buffer, np.repeat(tone[:, None], channels, axis=1), rate, format=kind)
    return buffer.getvalue()


def data_uri(content: bytes) -> str:
    return "data:audio/wav;base64," + base64.b64encode(content).decode()


def refusal(references: References, source: str) -> str:
    with pytest.raises(RequestError) as caught:
        references.read(source, "words")
    return caught.value.kind


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "a.wav").write_bytes(recording())
    (tmp_path / "secret.wav").write_bytes(recording())
    (inside / "link.wav").symlink_to(tmp_path / "secret.wav")
    return inside


def test_a_data_uri_and_a_path_below_the_folder_give_the_same_voice(folder: Path) -> None:
    references = References(CODEC, folder, ReferenceLimits())
    voices = [references.read(source, "w") for source in ("a.wav", f"file://{folder}/a.wav", data_uri(recording()))]
    assert len({voice.id for voice in voices}) == 1
    assert voices[0].text == "w"
    assert len(voices[0].codes) == pytest.approx(0.5 * CODEC.frame_rate, abs=1)


@pytest.mark.parametrize(
    "source", ["../secret.wav", "link.wav", "/etc/passwd", "file:///etc/passwd", "..", "a.wav\0", "http://x/a.wav"]
)
def test_nothing_outside_the_folder_is_read_and_nothing_is_fetched(folder: Path, source: str) -> None:
    assert refusal(References(CODEC, folder, ReferenceLimits()), source) == "reference_not_allowed"


def test_without_a_folder_no_path_is_read(folder: Path) -> None:
    references = References(CODEC, None, ReferenceLimits())
    assert refusal(references, str(folder / "a.wav")) == "reference_not_allowed"
    assert refusal(References(CODEC, folder, ReferenceLimits()), "missing.wav") == "no_reference"


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (recording(0.05), "reference_length"),
        (recording(300), "reference_length"),
        (recording(61, kind="FLAC"), "reference_length"),
        (recording(0), "reference_length"),
        (b"", "malformed_reference"),
        (b"RIFF", "malformed_reference"),
        (recording()[:40], "malformed_reference"),
    ],
    ids=["0.05 s", "300 s", "compressed", "no samples", "empty", "cut", "header alone"],
)
def test_a_recording_that_is_none_or_has_a_wrong_length_is_named(content: bytes, kind: str) -> None:
    found = refusal(References(CODEC, None, ReferenceLimits()), data_uri(content))
    assert found in (kind, "reference_length")


def test_s81_samples_that_are_no_numbers_are_named() -> None:
    buffer = io.BytesIO()
    soundfile.write(buffer, np.full(16_000, np.nan, np.float32), 16_000, format="WAV", subtype="FLOAT")
    assert refusal(References(CODEC, None, ReferenceLimits()), data_uri(buffer.getvalue())) == "malformed_reference"


@pytest.mark.parametrize("source", ["data:audio/wav,abc", "data:audio/wav;base64,!!!", "data:"])
def test_a_malformed_data_uri_is_named(source: str) -> None:
    assert refusal(References(CODEC, None, ReferenceLimits()), source) == "malformed_reference"


def test_a_file_larger_than_the_limit_is_not_read(folder: Path) -> None:
    references = References(CODEC, folder, ReferenceLimits(max_bytes=1000))
    assert refusal(references, "a.wav") == refusal(references, data_uri(recording())) == "reference_length"


@pytest.mark.parametrize(("rate", "channels"), [(8_000, 1), (44_100, 2), (48_000, 1)])
def test_s80_other_rates_and_channels_give_codes_of_the_same_length(rate: int, channels: int) -> None:
    voice = References(CODEC, None, ReferenceLimits()).read(data_uri(recording(1.0, rate, channels)), "w")
    assert len(voice.codes) == pytest.approx(CODEC.frame_rate, abs=1)
