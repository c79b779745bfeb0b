"""Speaker encoders: a random WavLM in the released layout for the arithmetic, resemblyzer's own weights for the listening."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from scipy.signal import resample_poly

from elocution.errors import CheckpointError, ConfigError, MissingDependency
from elocution.measures import SpeakerEncoder, load_speaker_encoder
from elocution.measures.speakers import XVectorEncoder, cosine_similarity
from elocution.testing.random_models import save_random_wavlm
from elocution.types import Audio

RATE = 16_000


@pytest.fixture(scope="module")
def wavlm(tmp_path_factory: pytest.TempPathFactory) -> SpeakerEncoder:
    folder = tmp_path_factory.mktemp("wavlm-sv")
    save_random_wavlm(folder)
    return load_speaker_encoder("wavlm-sv", path=str(folder))


@pytest.fixture(scope="module")
def resemblyzer() -> SpeakerEncoder:
    if importlib.util.find_spec("resemblyzer") is None:
        pytest.skip("needs resemblyzer: pip install 'elocution[measures]' && pip install --no-deps resemblyzer")
    return load_speaker_encoder("resemblyzer")


def check_batch_equals_one_by_one(encoder: SpeakerEncoder, clips: list[Audio]) -> None:
    together = encoder.embed(clips)
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1.0, rtol=1e-5)
    for clip, row in zip(clips, together, strict=True):
        np.testing.assert_allclose(encoder.embed([clip])[0], row, atol=1e-5)


def unequal(spoken: dict[str, Audio]) -> list[Audio]:
    clips = list(spoken.values())[:3]
    short = Audio(clips[0].samples[: RATE // 2], RATE)
    return [*clips, short, clips[0]]


def test_cosines_by_hand() -> None:
    one = np.array([[1.0, 0.0], [3.0, 4.0], [1.0, 0.0]], dtype=np.float32)
    other = np.array([[0.0, 2.0], [6.0, 8.0], [-2.0, 0.0]], dtype=np.float32)
    np.testing.assert_allclose(cosine_similarity(one, other), [0.0, 1.0, -1.0])


def test_clips_of_unequal_length_embed_as_alone(wavlm: SpeakerEncoder, spoken: dict[str, Audio]) -> None:
    check_batch_equals_one_by_one(wavlm, unequal(spoken))


def test_resemblyzer_embeds_clips_of_unequal_length_as_alone(
    resemblyzer: SpeakerEncoder, spoken: dict[str, Audio]
) -> None:
    check_batch_equals_one_by_one(resemblyzer, unequal(spoken))


@pytest.mark.parametrize("samples", [np.zeros(RATE, np.float32), np.ones(RATE // 10, np.float32)])
def test_s09_a_clip_without_a_voice_is_an_error_and_no_embedding(samples: np.ndarray, wavlm: SpeakerEncoder) -> None:
    with pytest.raises(ValueError, match="voice"):
        wavlm.embed([Audio(samples, RATE)])


def test_one_voice_is_nearer_to_itself_than_to_the_same_words_a_quarter_higher(
    resemblyzer: SpeakerEncoder, spoken: dict[str, Audio]
) -> None:
    clips = list(spoken.values())
    higher = [Audio(resample_poly(clip.samples, 4, 5).astype(np.float32), RATE) for clip in clips]
    own, others = resemblyzer.embed(clips), resemblyzer.embed(higher)
    reference = own[:1].repeat(len(clips) - 1, axis=0)
    same, different = cosine_similarity(own[1:], reference), cosine_similarity(others[1:], reference)
    assert (same > different + 0.02).all(), (same, different)


@pytest.mark.parametrize("name", ["wavlm-sv", "ecapa", "campplus"])
def test_a_missing_or_wrong_folder_is_named_with_its_key(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"needs a checkpoint folder: set reward\.speaker_path"):
        load_speaker_encoder(name)
    with pytest.raises(ConfigError, match=r"reward\.speaker_path = '.*absent' is no folder"):
        load_speaker_encoder(name, path=str(tmp_path / "absent"))


def test_a_folder_that_is_no_speaker_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="WavLMForXVector"):
        XVectorEncoder(str(tmp_path))


@pytest.mark.parametrize(
    ("name", "package", "install"),
    [
        ("resemblyzer", "resemblyzer", r"elocution\[measures\].*--no-deps resemblyzer"),
        ("ecapa", "speechbrain", "--no-deps speechbrain hyperpyyaml"),
        ("campplus", "sherpa_onnx", r"elocution\[sherpa\]"),
    ],
)
def test_a_missing_package_says_how_to_install_it(name: str, package: str, install: str, tmp_path: Path) -> None:
    if importlib.util.find_spec(package) is not None:
        pytest.skip(f"{package} is installed")
    with pytest.raises(MissingDependency, match=install):
        load_speaker_encoder(name, path="" if name == "resemblyzer" else str(tmp_path))
