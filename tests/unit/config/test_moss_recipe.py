"""The published recipe of MOSS-VoiceGenerator: its numbers in our config, its flags in our script."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import elocution
from elocution.cli.main import app
from elocution.config.load import load_config

CONFIGS = Path(elocution.__file__).parent / "configs" / "moss"
SCRIPT = Path(__file__).parents[3] / "examples" / "moss" / "train.sh"


def run_script(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "ELOCUTION": f"{sys.executable} -m elocution",
        "CONFIG": str(CONFIGS / "published.toml"),
    }
    return subprocess.run(
        ["bash", str(SCRIPT), *arguments],
        env=environment | env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def resolved(*arguments: str, **env: str) -> dict[str, Any]:
    done = run_script(*arguments, "--dry-run", **env)
    assert done.returncode == 0, done.stderr
    return tomllib.loads(done.stdout.split("\na step:")[0])


@pytest.mark.parametrize("recipe", sorted(CONFIGS.glob("[!r]*.toml")), ids=lambda path: path.stem)
def test_every_moss_recipe_runs_dry_without_weights(recipe: Path) -> None:
    shown = CliRunner().invoke(app, ["train", str(recipe), "--dry-run"])
    assert shown.exit_code == 0, shown.output
    assert 'family = "moss"' in shown.output


def test_the_published_moss_recipe_has_the_published_numbers() -> None:
    config = load_config(CONFIGS / "published.toml", [])
    train, reward = config.train, config.reward
    assert (train.prompts_per_step, config.rollout.group_size, train.learning_rate, train.steps) == (8, 4, 5e-5, 1600)
    assert (train.sync_every, train.save_every, train.warmup_steps, train.lr_schedule) == (5, 200, 0, "constant")
    assert (config.model.lora.rank, config.model.lora.alpha, config.algorithm.channel_weights) == (8, 16.0, "1,32")
    assert (config.seed, reward.gate_beta) == (42, 10.0)
    assert {name: part.weight for name, part in reward.components.items()} == {
        "speaker": 0.5,
        "emotion": 0.4,
        "quality": 0.1,
    }
    assert reward.components == load_config(CONFIGS / "reward-v7.toml", []).reward.components
    assert (train.device, len(config.rollout.server.devices), reward.devices) == ("cuda:0", 6, ("cuda:7",))


def test_the_script_takes_the_published_flags_and_variables_and_set_wins() -> None:
    flags = {
        "batch-size": "4",
        "group-size": "6",
        "lr": "1e-5",
        "max-steps": "500",
        "sync-every": "3",
        "save-every": "50",
        "channelwise-loss-weight": "1,16",
        "w-speaker": "0.6",
        "w-clap": "0.4",
        "w-quality": "0.0",
        "beta-wer": "5",
        "train-device": "cuda:1",
        "sglang-gpus": "2,3",
        "reward-device": "cuda:0",
        "lr-schedule": "cosine",
        "warmup-steps": "10",
        "lr-min": "1e-6",
        "seed": "7",
    }
    spelt = [part for flag, value in flags.items() for part in (f"--{flag}", value)]
    tree = resolved(*spelt, "--set", "train.steps=9", MVG_DIR="/m", CODEC_DIR="/k", EMOLIA_DIR="/e", CLAP_DIR="/c")
    train, reward = tree["train"], tree["reward"]
    wanted = {"prompts_per_step": 4, "learning_rate": 1e-5, "steps": 9, "sync_every": 3, "max_lag": 3, "save_every": 50}
    wanted |= {"lr_schedule": "cosine", "warmup_steps": 10, "lr_min": 1e-6, "device": "cuda:1"}
    assert {key: train[key] for key in wanted} == wanted
    assert (tree["seed"], tree["rollout"]["group_size"], tree["algorithm"]["channel_weights"]) == (7, 6, "1,16")
    assert (tree["rollout"]["server"]["devices"], reward["devices"], reward["gate_beta"]) == (["2", "3"], ["cuda:0"], 5)
    assert {name: part["weight"] for name, part in reward["components"].items()} == {"speaker": 0.6, "emotion": 0.4}
    assert (tree["model"]["path"], tree["codec"]["path"], reward["clap_path"]) == ("/m", "/k", "/c")
    assert (tree["data"]["train"], tree["data"]["held_out"]) == ("/e/train.jsonl", "/e/held_out.jsonl")


def test_without_flags_the_script_runs_the_config_as_it_is() -> None:
    environment = dict.fromkeys(("MVG_DIR", "CODEC_DIR", "EMOLIA_DIR", "CLAP_DIR"), "")
    shown = CliRunner().invoke(app, ["train", str(CONFIGS / "published.toml"), "--dry-run"])
    assert resolved(**environment) == tomllib.loads(shown.stdout.split("\na step:")[0])
    assert resolved("--lr=2e-5", **environment)["train"]["learning_rate"] == 2e-5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--learning-rate", "1"], "there is no flag --learning-rate"),
        (["--lr"], "--lr needs a value"),
        (["--w-clap", "-1"], "the weight of emotion is -1"),
        (["--w-clap", "0", "--w-speaker", "0.0", "--w-quality", "0"], "all weights are 0"),
        (["--resume-step", "200"], "--resume-step needs --output-dir"),
        (["--resume-step", "200", "--output-dir", "absent"], "the newest checkpoint of absent is step none, not 200"),
    ],
)
def test_the_script_names_what_is_wrong(arguments: list[str], message: str) -> None:
    done = run_script(*arguments)
    assert done.returncode == 2
    assert message in done.stderr


def test_an_adapter_to_begin_with_must_be_merged(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text("{}")
    assert "is an adapter" in run_script("--lora-init", str(tmp_path)).stderr
