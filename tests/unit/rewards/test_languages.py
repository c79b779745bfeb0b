"""A recogniser that does not hear a language of the run is found before any work."""

from pathlib import Path

import pytest

from elocution.config.load import load_config
from elocution.config.tree import EvalConfig, RewardConfig
from elocution.errors import ConfigError
from elocution.rewards.languages import check_folders, check_languages
from elocution.serve.reward_server import check_server_config
from elocution.train.loop import train
from elocution.types import Audio


class HearsGerman:
    """Says what it hears."""

    languages = ("de",)

    def transcribe(self, audio: Audio) -> str:
        return ""


class HearsAnything:
    """Does not say what it hears."""

    def transcribe(self, audio: Audio) -> str:
        return ""


def _composite(fact: str, **settings: object) -> RewardConfig:
    components = {"only": {"fact": fact, "utility": "linear"}}
    return RewardConfig.model_validate({"type": "composite", "components": components, **settings})


@pytest.mark.parametrize(
    "config",
    [
        _composite("wer", asr=f"{__name__}:HearsGerman"),
        _composite("wer", asr=f"{__name__}:HearsAnything"),
        _composite("rate"),
        RewardConfig(type="module:Class"),
        RewardConfig(type="remote"),
    ],
)
def test_what_hears_all_or_listens_to_no_words_is_accepted(config: RewardConfig) -> None:
    check_languages(config, ["de"])


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (RewardConfig(), r"reward\.asr = 'pocketsphinx-bigram' hears en, but data\.languages has de"),
        (RewardConfig(asr=f"{__name__}:HearsAnything"), r"reward\.nll = 'hama' hears en, but data\.languages has de"),
        (_composite("nll"), r"reward\.nll = 'hama'"),
        (_composite("rate", gate_beta=1.0), r"reward\.asr = 'pocketsphinx-bigram'"),
    ],
)
def test_what_does_not_hear_a_language_is_refused(config: RewardConfig, message: str) -> None:
    check_languages(config, ["en"])
    with pytest.raises(ConfigError, match=message):
        check_languages(config, ["en", "de"])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["reward.asr=whisper"], r"reward\.asr = 'whisper' needs a checkpoint folder: set reward\.asr_path"),
        (["reward.nll=whisper", "reward.nll_path=absent"], r"reward\.nll_path = 'absent' is no folder"),
        (["eval.judge=parakeet"], r"eval\.judge = 'parakeet' needs a checkpoint folder: set eval\.judge_path"),
        (['reward.asr_by_language.en={name="whisper"}'], r"set reward\.asr_by_language\.en\.path"),
    ],
)
def test_a_run_whose_recogniser_has_no_folder_is_refused_before_any_model_is_loaded(
    tmp_path: Path, settings: list[str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        train(load_config(None, [*settings, "model.path=absent"]), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_recogniser_that_nothing_asks_needs_no_folder() -> None:
    check_folders(_composite("rate", asr="whisper", nll="whisper"), EvalConfig())
    check_folders(RewardConfig(type="module:Class", asr="whisper"), EvalConfig())


def test_a_run_refuses_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"data\.languages has zh"):
        train(load_config(None, ['data.languages=["en", "zh"]']), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_server_refuses_before_anything_is_loaded() -> None:
    with pytest.raises(ConfigError, match=r"data\.languages has zh"):
        check_server_config(load_config(None, ['data.languages=["en", "zh"]']))
