"""The recipes: their numbers, the published reward, and the script of the stages."""

import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

import elocution
from elocution.cli.main import app
from elocution.config.load import load_config
from elocution.rewards.composite import utility

ROOT = Path(__file__).parents[3]
CONFIGS = Path(elocution.__file__).parent / "configs" / "cosyvoice2"
SCRIPT = ROOT / "examples" / "cosyvoice2" / "run.sh"


@pytest.mark.parametrize("recipe", sorted(CONFIGS.glob("*.toml")), ids=lambda path: path.stem)
def test_every_recipe_runs_dry_without_weights(recipe: Path) -> None:
    shown = CliRunner().invoke(app, ["train", str(recipe), "--dry-run"])
    assert shown.exit_code == 0, shown.output
    assert 'family = "cosyvoice2"' in shown.output


def test_s87_the_published_recipe_has_the_published_numbers() -> None:
    config = load_config(CONFIGS / "published.toml", [])
    train, algorithm = config.train, config.algorithm
    assert (train.prompts_per_step, config.rollout.group_size, config.rollout.min_codes) == (32, 4, 511)
    assert (train.learning_rate, train.save_every, train.steps, config.rollout.temperature) == (1e-6, 100, 2500, 0.8)
    assert (algorithm.clip_low, algorithm.clip_high, algorithm.dual_clip, algorithm.kl_coef) == (0.2, 0.2, 3.0, 0.0)
    dapo = load_config(CONFIGS / "dapo.toml", [])
    assert (dapo.algorithm.clip_high, dapo.algorithm.dual_clip, dapo.algorithm.max_resamples) == (0.28, 10.0, 10)
    assert (dapo.train.minibatches, dapo.train.warmup_steps, dapo.train.weight_decay) == (2, 10, 0.1)


@pytest.mark.parametrize(
    ("recipe", "wanted"),
    [
        ("cosyvoice2", {0: 1, 0.05: 0.851, 0.1: 0.709, 0.2: 0.463, 0.3: 0.284, 0.5: 0.095, 1: 0.0049}),
        ("cosyvoice2-power", {0: 1, 0.05: 0.874, 0.1: 0.684, 0.2: 0.342, 0.3: 0.139, 0.5: 0.014, 1: 6e-6}),
    ],
)
def test_the_served_recipe_is_the_published_reward(recipe: str, wanted: dict[float, float], tmp_path: Path) -> None:
    shown = CliRunner().invoke(app, ["serve", "rewards", "--recipe", recipe, "--dry-run"])
    assert shown.exit_code == 0, shown.output
    (tmp_path / "resolved.toml").write_text(shown.output)
    config = load_config(tmp_path / "resolved.toml", [])
    assert (config.reward_server.port, config.reward_server.metrics_port) == (8000, 8002)
    (component,) = config.reward.components.values()
    for rate, value in wanted.items():
        assert utility(component, rate) == pytest.approx(value, abs=6e-4)
    trained = load_config(CONFIGS / ("published.toml" if recipe == "cosyvoice2" else "grpo.toml"), [])
    assert trained.reward.components["words"] == component
    assert tomllib.loads(shown.output)["reward"]["type"] == "composite"


def test_a_users_value_wins_over_the_recipe() -> None:
    arguments = [
        "serve",
        "rewards",
        "--recipe",
        "cosyvoice2",
        "--dry-run",
        "--port",
        "9000",
        "--set",
        "reward.components.words.scale=2.0",
    ]
    shown = CliRunner().invoke(app, arguments)
    assert shown.exit_code == 0, shown.output
    server = shown.output.partition("[reward_server]")[2]
    assert "port = 9000" in server
    assert "scale = 2.0" in shown.output


def test_a_chinese_recipe_with_an_english_recogniser_is_refused_before_it_loads() -> None:
    arguments = [
        "serve",
        "rewards",
        "--recipe",
        "cosyvoice2",
        "--set",
        'data.languages=["zh"]',
        "--port",
        "0",
        "--set",
        "reward_server.metrics_port=0",
    ]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code != 0
    assert "zh" in str(result.exception)
    assert "pocketsphinx-bigram" in str(result.exception)


def run_script(tmp_path: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", str(SCRIPT), *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "ELOCUTION": "echo ran", **environment},
    )


def test_the_script_runs_the_stages_that_it_is_asked_for(tmp_path: Path) -> None:
    one = run_script(tmp_path, "0", "0")
    assert one.returncode == 0, one.stderr
    assert re.findall(r"== stage (-?\d+)", one.stdout) == ["0"]
    assert "ran data prepare cosyvoice2 builtin:tiny-train --test-source builtin:tiny-held-out" in one.stdout
    every = run_script(tmp_path, "-2", "5", MODEL="m", TRAIN="t.jsonl", TEST="", LANGUAGE="zh", WORK="w")
    assert every.returncode == 0, every.stderr
    assert re.findall(r"== stage (-?\d+)", every.stdout) == ["-2", "-1", "0", "2", "4", "5"]
    assert "ran data prepare cosyvoice2 t.jsonl --test 256 --language zh --to w/data" in every.stdout
    assert "ran convert cosyvoice2 to-hf m --to w/hf" in every.stdout
    assert "--set model.path=w/hf" in every.stdout
    assert "ran eval w/run --sweep --set-name held-out" in every.stdout
    several = run_script(tmp_path, "4", "4", EVALUATE="echo torchrun", EVAL_SET="zh/meta.lst")
    assert "torchrun runs/cosyvoice2/run --sweep --set-name zh/meta.lst" in several.stdout


def test_a_stage_whose_result_is_there_is_not_run_again(tmp_path: Path) -> None:
    (tmp_path / "w" / "hf").mkdir(parents=True)
    (tmp_path / "w" / "run").mkdir()
    (tmp_path / "w" / "run" / "config.toml").touch()
    (tmp_path / "w" / "llm.pt").touch()
    done = run_script(tmp_path, "-1", "5", WORK="w")
    assert done.returncode == 0, done.stderr
    assert "to-hf" not in done.stdout
    assert "to-native" not in done.stdout
    assert "ran train --resume --output-dir w/run" in done.stdout


@pytest.mark.parametrize("arguments", [(), ("1",), ("2", "1"), ("a", "b"), ("0", "1", "2")])
def test_the_script_says_how_it_is_called(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    done = run_script(tmp_path, *arguments)
    assert done.returncode == 2
    assert "run.sh START STOP" in done.stderr
    assert "ran" not in done.stdout


def test_every_fault_that_the_docs_name_has_a_test_that_exists() -> None:
    text = (ROOT / "docs" / "cosyvoice2.md").read_text(encoding="utf-8")
    named = re.findall(r"`(test_\w+)`", text)
    assert len(named) >= 8
    written = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name in named if f"def {name}(" not in written] == []
