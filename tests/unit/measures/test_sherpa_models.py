"""Models that sherpa-onnx runs, with random weights in the released layouts; skipped where it, or onnx, is absent."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from random_onnx import save_random_paraformer, save_random_sensevoice, save_random_speaker_model

from elocution.errors import CheckpointError, ConfigError
from elocution.measures import BatchTranscriber, load_speaker_encoder, load_transcriber
from elocution.types import Audio

pytestmark = pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("sherpa_onnx", "onnx"))),
    reason="needs sherpa-onnx and onnx: make test-measures",
)
SAVED = {"sherpa-sensevoice": save_random_sensevoice, "sherpa-paraformer": save_random_paraformer}


def load(name: str, folder: Path) -> BatchTranscriber:
    SAVED[name](folder)
    recogniser = load_transcriber(name, path=str(folder))
    assert isinstance(recogniser, BatchTranscriber)
    return recogniser


def unequal(spoken: dict[str, Audio]) -> list[Audio]:
    clips = list(spoken.values())[:3]
    return [*clips, Audio(clips[0].samples[:8000], clips[0].sample_rate), clips[0]]


@pytest.mark.parametrize("name", SAVED)
def test_clips_of_unequal_length_are_heard_together_as_alone(
    name: str, tmp_path: Path, spoken: dict[str, Audio]
) -> None:
    recogniser, clips = load(name, tmp_path), unequal(spoken)
    together = recogniser.transcribe_all(clips, ["zh"] * len(clips))
    assert together == [recogniser.transcribe_all([clip], ["zh"])[0] for clip in clips]
    assert together[0] == together[4] != together[1]
    assert all(set(text) <= set("一二三四五") and text for text in together)


@pytest.mark.parametrize("name", SAVED)
@pytest.mark.parametrize("samples", [0, 1, 400, 1000, 1700])
def test_clips_shorter_than_a_word_are_survived(name: str, samples: int, tmp_path: Path) -> None:
    noise = np.random.default_rng(0).standard_normal(samples).astype(np.float32) * 0.1
    recogniser = load(name, tmp_path)
    heard = recogniser.transcribe_all([Audio(noise, 16_000)] * 2, ["zh"] * 2)
    assert heard[0] == heard[1]
    assert bool(heard[0]) <= (samples > 1600)


def test_sensevoice_is_told_the_language_of_each_clip(tmp_path: Path, spoken: dict[str, Audio]) -> None:
    recogniser, clip = load("sherpa-sensevoice", tmp_path), next(iter(spoken.values()))
    zh, ko, again = recogniser.transcribe_all([clip] * 3, ["zh", "ko", "zh"])
    assert zh == again != ko
    with pytest.raises(ValueError, match="'de' was asked for"):
        recogniser.transcribe_all([clip], ["de"])


def test_campplus_embeds_clips_of_unequal_length_as_alone(tmp_path: Path, spoken: dict[str, Audio]) -> None:
    save_random_speaker_model(tmp_path)
    encoder = load_speaker_encoder("campplus", path=str(tmp_path))
    clips = unequal(spoken)
    together = encoder.embed(clips)
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1.0, rtol=1e-5)
    for clip, row in zip(clips, together, strict=True):
        np.testing.assert_allclose(encoder.embed([clip])[0], row, atol=1e-6)
    assert np.abs(together[0] - together[1]).max() > 1e-3


@pytest.mark.parametrize("content", [b"", b"vocab_size", b"an export without what sherpa-onnx wants to know"])
@pytest.mark.parametrize("name", ["sherpa-sensevoice", "sherpa-paraformer", "campplus"])
def test_a_file_that_would_end_the_process_is_refused(name: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(content)
    (tmp_path / "tokens.txt").touch()
    load = load_speaker_encoder if name == "campplus" else load_transcriber
    with pytest.raises(CheckpointError, match=r"model\.onnx is (empty|no model exported for sherpa-onnx)"):
        load(name, path=str(tmp_path))


def test_a_folder_without_a_speaker_model_says_what_it_has(tmp_path: Path) -> None:
    (tmp_path / "readme.md").touch()
    with pytest.raises(ConfigError, match=r"has no campplus\.onnx; it has readme\.md"):
        load_speaker_encoder("campplus", path=str(tmp_path))
