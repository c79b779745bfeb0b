"""CLAP with random weights in the released layout: the cosine is the model's own, and belongs to its clip alone."""

from pathlib import Path

import numpy as np
import pytest

from elocution.config.tree import RewardConfig
from elocution.errors import CheckpointError, ConfigError
from elocution.measures.clap import ClapScorer
from elocution.measures.facts import SpokenText
from elocution.measures.listener import build_listener
from elocution.testing.random_models import save_random_clap
from elocution.types import Audio


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("clap")
    save_random_clap(path)
    return path


def test_a_cosine_belongs_to_its_clip_and_its_words(folder: Path, spoken: dict[str, Audio]) -> None:
    clips = list(spoken.values())[:2]
    long = Audio(np.tile(clips[0].samples, 10), clips[0].sample_rate)
    scorer = ClapScorer(str(folder))
    together = scorer.similarities([*clips, long], [["a happy voice", "a bell"], ["a sad voice"], ["a sad voice"]])
    values = [value for row in together for value in row]
    assert [len(row) for row in together] == [2, 1, 1]
    assert len(set(values)) == 4
    assert all(-1 <= value <= 1 for value in values)
    assert scorer.similarities([long], [["a sad voice"]])[0] == pytest.approx(together[2], abs=1e-6)
    assert scorer.similarities(clips[:1], [["a bell"]])[0] == pytest.approx(together[0][1:], abs=1e-6)


def test_the_prompts_description_goes_before_the_configs(folder: Path, spoken: dict[str, Audio]) -> None:
    audio = next(iter(spoken.values()))
    scorer = ClapScorer(str(folder))
    nothing = np.zeros((0, 1), np.int64)
    listen = build_listener(["clap_similarity"], RewardConfig(clap_path=str(folder), clap_text="a calm voice"))
    for own, used in (("", "a calm voice"), ("an angry voice", "an angry voice")):
        found = listen(SpokenText(audio, "one", "en", nothing, description=own))
        assert found.facts["clap_similarity"] == pytest.approx(scorer.similarities([audio], [[used]])[0][0])
    listen = build_listener(["clap_similarity"], RewardConfig(clap_path=str(folder)))
    assert "nothing to take it from" in listen(SpokenText(audio, "one", "en", nothing)).failures["clap_similarity"]


def test_quality_needs_no_description(folder: Path, spoken: dict[str, Audio]) -> None:
    audio = next(iter(spoken.values()))
    listen = build_listener(["clap_similarity", "clap_quality"], RewardConfig(clap_path=str(folder)))
    found = listen(SpokenText(audio, "one", "en", np.zeros((0, 1), np.int64)))
    text = "High Quality Recording, fluid pleasant performance"
    (expected,) = ClapScorer(str(folder)).similarities([audio], [[text]])[0]
    assert found.facts == {"clap_quality": pytest.approx(expected)}
    assert found.failures.keys() == {"clap_similarity"}


def test_a_missing_folder_and_one_that_is_no_clap_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"set reward\.clap_path"):
        ClapScorer()
    with pytest.raises(CheckpointError, match="ClapModel"):
        ClapScorer(str(tmp_path))
