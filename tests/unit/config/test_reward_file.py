import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from elocution.cli.main import app
from elocution.config.load import load_config
from elocution.config.reward_file import read_reward_file
from elocution.errors import ConfigError

VALUES = {
    "metric": "cer",
    "normaliser": "spoken",
    "recogniser": "mine:Ears",
    "alpha_w": 2,
    "alpha_n": 1.5,
    "lambda_w": 0.7,
    "lambda_n": 0.3,
}
CONFIGS = Path(__file__).parents[3] / "configs" / "llasa"


@pytest.mark.parametrize("suffix", ["json", "toml"])
def test_short_names_reach_the_reward(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"reward.{suffix}"
    lines = "".join(f"{key} = {json.dumps(value)}\n" for key, value in VALUES.items())
    path.write_text(json.dumps(VALUES) if suffix == "json" else lines)
    reward = load_config(None, read_reward_file(path)).reward
    assert (reward.metric, reward.normalizer, reward.asr) == ("cer", "spoken", "mine:Ears")
    assert (reward.alpha_wer, reward.alpha_nll, reward.lambda_wer, reward.lambda_nll) == (2.0, 1.5, 0.7, 0.3)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"alpha_x": 1.0}', r"reward\.json: unknown key 'alpha_x'; did you mean 'alpha_"),
        ('{"alpha_w": -1.0}', r"reward\.json: alpha_wer = -1\.0: .* greater than 0"),
        ('{"alpha_w": 1.0, "alpha_wer": 2.0}', "says again"),
        ('{"metric": "mos"}', r"metric = 'mos'"),
        ('{"metric": "cer", "normalizer": "seed_tts"}', "not metric = 'cer'"),
        ('{"components": {}}', "unknown key 'components'"),
        ("[1]", "must hold an object"),
        ("{", "not valid JSON"),
    ],
)
def test_what_is_wrong_is_named_with_its_file(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "reward.json"
    path.write_text(content)
    with pytest.raises(ConfigError, match=message):
        read_reward_file(path)


def test_an_absent_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read the reward config .*absent\.json"):
        read_reward_file(tmp_path / "absent.json")


def test_s87_the_published_flags_are_taken_and_set_wins(tmp_path: Path) -> None:
    reward = tmp_path / "reward.json"
    reward.write_text('{"alpha_w": 2.5, "lambda_n": 0.5}')
    arguments = ["train", str(CONFIGS / "published.toml"), "--dry-run", "--model_name_or_path", "some/Llasa-1B"]
    arguments += ["--dataset", "x.parquet", "--reward_config", str(reward), "--output_dir", str(tmp_path / "run")]
    shown = CliRunner().invoke(app, [*arguments, "--set", "reward.lambda_nll=0.2"])
    assert shown.exit_code == 0, shown.output
    for line in ('path = "some/Llasa-1B"', 'train = "x.parquet"', "alpha_wer = 2.5", "lambda_nll = 0.2"):
        assert line in shown.output
    assert not (tmp_path / "run").exists()


def test_s87_the_published_recipe_has_the_published_numbers() -> None:
    config = load_config(CONFIGS / "published.toml", ["model.path=elsewhere"])
    reward, algorithm, train = config.reward, config.algorithm, config.train
    assert (reward.alpha_wer, reward.alpha_nll, reward.lambda_wer, reward.lambda_nll) == (3.0, 3.0, 0.6, 0.4)
    assert (config.rollout.group_size, config.rollout.temperature, config.rollout.min_codes) == (8, 1.0, 255)
    assert (train.learning_rate, train.steps, train.prompts_per_step, train.save_every) == (1e-6, 2000, 1, 500)
    assert (train.lr_schedule, train.lr_min, train.warmup_steps) == ("linear", 0.0, 0)
    assert (algorithm.clip_low, algorithm.clip_high, algorithm.kl_coef, algorithm.truncated) == (0.2, 0.2, 0.0, "keep")


@pytest.mark.parametrize("recipe", sorted(CONFIGS.glob("*.toml")), ids=lambda path: path.stem)
def test_every_recipe_runs_dry_without_weights(recipe: Path) -> None:
    shown = CliRunner().invoke(app, ["train", str(recipe), "--dry-run", "--set", "model.path=elsewhere"])
    assert shown.exit_code == 0, shown.output
    absent = shown.output.splitlines()[-1]
    assert "not there yet: model.path = 'elsewhere'" in absent
    assert ("reward.asr_path = 'whisper-large-v3'" in absent) == (recipe.stem != "tiny")
