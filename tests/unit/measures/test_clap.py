"""CLAP with random weights in the released layout: the cosine is the model's own, and belongs to its clip alone."""

from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import pre_tokenizers
from transformers import (
    ClapAudioConfig,
    ClapConfig,
    ClapFeatureExtractor,
    ClapModel,
    ClapProcessor,
    ClapTextConfig,
    RobertaTokenizer,
)

from elocution.config.tree import RewardConfig
from elocution.errors import CheckpointError, ConfigError
from elocution.measures.clap import ClapScorer
from elocution.measures.facts import SpokenText
from elocution.measures.listener import build_listener
from elocution.types import Audio


def save_random(folder: Path) -> None:
    torch.manual_seed(0)
    text = ClapTextConfig(
        vocab_size=300,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=24,
        projection_dim=8,
    )
    audio = ClapAudioConfig(
        hidden_size=16,
        patch_embeds_hidden_size=8,
        depths=[1, 1],
        num_attention_heads=[1, 2],
        num_hidden_layers=2,
        projection_dim=8,
        num_mel_bins=64,
    )
    ClapModel(ClapConfig(text_config=text.to_dict(), audio_config=audio.to_dict(), projection_dim=8)).save_pretrained(
        folder
    )
    letters = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokenizer = RobertaTokenizer(vocab={letter: index for index, letter in enumerate(letters)}, merges=[])
    ClapProcessor(ClapFeatureExtractor(truncation="rand_trunc"), tokenizer).save_pretrained(folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("clap")
    save_random(path)
    return path


def test_a_cosine_belongs_to_its_clip_and_its_words(folder: Path, spoken: dict[str, Audio]) -> None:
    clips = list(spoken.values())[:2]
    long = Audio(np.tile(clips[0].samples, 10), clips[0].sample_rate)
    scorer = ClapScorer(str(folder))
    together = scorer.similarities([*clips, long], ["a happy voice", "a sad voice", "a sad voice"])
    assert len(set(together)) == 3
    assert all(-1 <= value <= 1 for value in together)
    assert scorer.similarities([long], ["a sad voice"]) == pytest.approx(together[2:], abs=1e-6)
    assert scorer.similarities(clips[:1], ["a happy voice"]) == pytest.approx(together[:1], abs=1e-6)


def test_the_prompts_description_goes_before_the_configs(folder: Path, spoken: dict[str, Audio]) -> None:
    audio = next(iter(spoken.values()))
    scorer = ClapScorer(str(folder))
    nothing = np.zeros((0, 1), np.int64)
    listen = build_listener(["clap_similarity"], RewardConfig(clap_path=str(folder), clap_text="a calm voice"))
    for own, used in (("", "a calm voice"), ("an angry voice", "an angry voice")):
        found = listen(SpokenText(audio, "one", "en", nothing, description=own))
        assert found.facts["clap_similarity"] == pytest.approx(scorer.similarities([audio], [used])[0])
    listen = build_listener(["clap_similarity"], RewardConfig(clap_path=str(folder)))
    assert "has no description" in listen(SpokenText(audio, "one", "en", nothing)).failures["clap_similarity"]


def test_a_missing_folder_and_one_that_is_no_clap_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"set reward\.clap_path"):
        ClapScorer()
    with pytest.raises(CheckpointError, match="ClapModel"):
        ClapScorer(str(tmp_path))
