"""The MOSS presets built as they are, on models with random weights: what they measure, and how it becomes a number."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import elocution
from elocution.audio import write_wav
from elocution.config.load import load_config
from elocution.config.tree import RunConfig
from elocution.rewards import load_reward
from elocution.testing.random_models import save_random_clap, save_random_wavlm
from elocution.testing.reward_server import running_reward_server
from elocution.types import Audio, Completion, FinishReason, Outcome, Rollout, Utterance, Voice

PRESETS = Path(elocution.__file__).parent / "configs" / "moss"
WEIGHTS = {"v1": {"speaker": 0.6, "emotion": 0.4}, "v7": {"speaker": 0.5, "emotion": 0.4, "quality": 0.1}}
FACTS = {"speaker": "speaker_similarity", "emotion": "clap_similarity", "quality": "clap_quality"}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    save_random_clap(folder / "clap")
    save_random_wavlm(folder / "wavlm")
    return folder


def preset(name: str, models: Path) -> RunConfig:
    paths = [f"reward.clap_path={models / 'clap'}", f"reward.speaker_path={models / 'wavlm'}"]
    return load_config(PRESETS / f"reward-{name}.toml", [*paths, "reward.speaker=wavlm-sv", "reward.workers=1"])


def completions(folder: Path, spoken: dict[str, Audio]) -> list[Rollout]:
    """Each text in a voice of its own; the second in the voice that is asked for, and the last with another's words."""
    texts, clips = list(spoken), list(spoken.values())
    completion = Completion(np.zeros((1, 1), np.int64), np.zeros((1, 1), np.float32), FinishReason.STOP, 0)
    found = []
    for index, (text, heard) in enumerate([(texts[0], clips[0]), (texts[1], clips[1]), (texts[0], clips[1])]):
        recording = folder / f"{index}.wav"
        write_wav(recording, clips[1])
        voice = Voice(str(index), "words", np.zeros((1, 1), np.int64), recording)
        asked = Utterance(str(index), text, voice=voice, description="a happy voice")
        found.append(Rollout(asked, completion, np.zeros((1, 1), np.int64), heard, Outcome.SPEECH))
    return found


@pytest.mark.parametrize("name", ["v1", "v7"])
def test_a_preset_measures_voice_emotion_and_quality_and_its_value_is_the_formula(
    name: str, models: Path, tmp_path: Path, spoken: dict[str, Audio]
) -> None:
    rollouts = completions(tmp_path, spoken)
    rollouts.append(replace(rollouts[0], utterance=replace(rollouts[0].utterance, voice=None)))
    with load_reward(preset(name, models).reward) as reward:
        *scores, without_voice = reward(rollouts)
    for score in scores:
        cosines = {part: score.raw[FACTS[part]] for part in WEIGHTS[name]}
        assert score.parts == pytest.approx({part: (1 + cosine) / 2 for part, cosine in cosines.items()})
        total = sum(weight * score.parts[part] for part, weight in WEIGHTS[name].items())
        assert score.value == pytest.approx(total * math.exp(-10 * score.raw["wer"]))
    assert scores[1].raw["speaker_similarity"] == pytest.approx(1.0, abs=1e-3)
    assert scores[0].raw["speaker_similarity"] < 0.999
    assert scores[2].raw["wer"] > 0.5
    assert scores[2].value is not None
    assert scores[2].value < 0.01
    assert without_voice.value is None
    assert "no prompt_audio" in str(without_voice.error)


def test_a_server_of_a_preset_scores_as_the_preset_does_beside_the_learner(
    models: Path, tmp_path: Path, spoken: dict[str, Audio]
) -> None:
    """The voice and the description reach the server; it has no path, only what it was sent."""
    config = preset("v7", models)
    rollouts = completions(tmp_path, spoken)
    rollouts.append(replace(rollouts[1], utterance=replace(rollouts[1].utterance, description="an angry bell")))
    with load_reward(config.reward) as reward:
        expected = reward(rollouts)
    with running_reward_server(config) as url:
        settings = ["reward.type=remote", f'reward.remote.urls=["{url}"]']
        with load_reward(load_config(PRESETS / "reward-v7.toml", settings).reward) as remote:
            assert remote(rollouts) == expected
    assert expected[1].raw["clap_similarity"] != expected[3].raw["clap_similarity"]
    assert expected[0].raw["speaker_similarity"] != expected[1].raw["speaker_similarity"]
