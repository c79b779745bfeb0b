"""veRL's own code on what we give it: overrides, parquet, reward function and manager, shards."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers.pre_tokenizers import ByteLevel
from transformers import Qwen2Config, Qwen2ForCausalLM, Qwen2Tokenizer
from typer.testing import CliRunner

import elocution
from elocution.assets import BUILTIN, resolve_path
from elocution.cli.main import app
from elocution.codecs import load_codec
from elocution.config.load import load_config
from elocution.config.tree import RunConfig
from elocution.data.recipe import SplitSettings, prepare_recipe
from elocution.data.recipe_rows import RecipeSettings
from elocution.errors import ConfigError, ExportError
from elocution.export.cosyvoice import to_huggingface
from elocution.export.cosyvoice_tokens import build_tokenizer
from elocution.policies import load_policy
from elocution.testing.reward_server import running_reward_server
from elocution.types import Audio, Utterance
from elocution.verl.launch import VerlRun, plan_run, resolve_by_verl, write_config
from elocution.verl.merge import merge_shards

CONFIGS = Path(elocution.__file__).parent / "configs" / "cosyvoice2"
TEXT = "the little brother was young"

Inside = Callable[..., Any]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder without the bias, and the parquet of the recipe."""
    folder = tmp_path_factory.mktemp("recipe")
    to_huggingface(BUILTIN["builtin:tiny-cosyvoice2"], folder / "hf", bias="drop")
    prepare_recipe(
        resolve_path("builtin:tiny-train"),
        folder / "data",
        SplitSettings(train=20, test=4),
        RecipeSettings(language="en"),
    )
    return folder


def run_config(made: Path, recipe: str, python: str, url: str = "http://127.0.0.1:8000") -> RunConfig:
    return load_config(
        CONFIGS / f"{recipe}.toml",
        [
            f"model.path={made / 'hf'}",
            f"data.train={made / 'data' / 'train.parquet'}",
            f"data.held_out={made / 'data' / 'test.parquet'}",
            'data.languages=["en"]',
            f'reward.remote.urls=["{url}"]',
            f"verl.python={python}",
        ],
    )


@pytest.fixture
def run(made: Path, verl_python: str, tmp_path: Path) -> VerlRun:
    return plan_run(run_config(made, "published", verl_python), tmp_path / "run")


@pytest.mark.parametrize("recipe", ["published", "grpo", "dapo"])
def test_verl_resolves_the_command_of_every_recipe(recipe: str, made: Path, verl_python: str, tmp_path: Path) -> None:
    config = run_config(made, recipe, verl_python)
    resolved = resolve_by_verl(plan_run(config, tmp_path / "run"), verl_python)
    assert "path: pkg://elocution.verl.score" in resolved
    assert f"config: {tmp_path / 'run' / 'config.toml'}" in resolved
    assert f"'n': {config.rollout.group_size}" in resolved


def test_verl_resolves_a_learning_rate_that_falls(made: Path, verl_python: str, tmp_path: Path) -> None:
    config = run_config(made, "published", verl_python)
    falling = config.train.model_copy(update={"lr_schedule": "cosine", "lr_min": 1e-7})
    resolved = resolve_by_verl(plan_run(config.model_copy(update={"train": falling}), tmp_path / "run"), verl_python)
    assert "lr_scheduler_type: cosine" in resolved
    assert "min_lr_ratio: 0.1" in resolved


def test_a_word_that_verl_does_not_know_is_refused_with_its_own_reason(
    made: Path, verl_python: str, tmp_path: Path
) -> None:
    config = run_config(made, "published", verl_python)
    config = config.model_copy(update={"verl": config.verl.model_copy(update={"overrides": ("trainer.stepz=1",)})})
    with pytest.raises(ConfigError, match="stepz"):
        resolve_by_verl(plan_run(config, tmp_path / "run"), verl_python)


def test_verls_own_types_take_the_config(inside: Inside, run: VerlRun) -> None:
    found = inside("types", overrides=run.command[3:])
    assert found == {
        "actor": "FSDPActorConfig",
        "rollout": "RolloutConfig",
        "group": 4,
        "clip": [0.2, 0.2, 3.0],
        "lr": 1e-6,
    }


@pytest.fixture(scope="module")
def spelled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small random model with a tokenizer of Qwen2's kind, as released; a folder's own, such as the tiny checkpoint's, veRL does
    not read."""
    folder = tmp_path_factory.mktemp("spelled")
    vocabulary = {byte: index for index, byte in enumerate(sorted(ByteLevel.alphabet()))}
    Qwen2Tokenizer(vocab={**vocabulary, "<|endoftext|>": len(vocabulary)}, merges=[]).save_pretrained(folder / "text")
    tokenizer, ids = build_tokenizer(folder / "text", "v2", 64)
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_attention_heads": 2, "num_key_value_heads": 1}
    config = Qwen2Config(vocab_size=len(tokenizer), num_hidden_layers=2, eos_token_id=ids.eos, **sizes)
    Qwen2ForCausalLM(config).save_pretrained(folder / "hf")
    tokenizer.save_pretrained(folder / "hf")
    return folder / "hf"


def test_verls_dataset_gives_the_prompts_that_our_policy_has(inside: Inside, run: VerlRun, spelled: Path) -> None:
    found = inside("prompts", overrides=[*run.command[3:], f"actor_rollout_ref.model.path={spelled}"])
    assert (found["rows"], found["indices"]) == (20, [0, 1])
    ours = load_policy("cosyvoice2", spelled).prompt_ids(Utterance("a", found["truth"]))
    assert found["ids"] == ours.tolist()
    assert len(ours) == len(found["truth"]) + 2


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with running_reward_server(load_config(None, ["reward.workers=1"])) as url:
        yield url


def test_s02_s27_verls_reward_loading_calls_our_manager_and_function(
    inside: Inside, made: Path, verl_python: str, server: str, spoken: dict[str, Audio], tmp_path: Path
) -> None:
    config = run_config(made, "grpo", verl_python, server)
    run = plan_run(config, tmp_path / "run")
    write_config(run, config)
    policy = load_policy("cosyvoice2", made / "hf")
    codes = load_codec("tiny", resolve_path("builtin:tiny-codec")).encode(spoken[TEXT])
    said = policy.completion_ids(codes)[:, 0].tolist()
    completions = [said, said, said[:-1], [policy.completion_ids(codes)[-1, 0].item()]]
    found = inside(
        "rewards",
        overrides=run.command[3:],
        completions=completions,
        texts=[TEXT, "the doctor visited the school", TEXT, TEXT],
        room=len(said),
    )
    good, wrong, cut, silent = (one["reward_extra_info"] for one in found)
    assert good["transcript"] == TEXT
    assert good["status"] == wrong["status"] == "scored"
    assert good["score"] > 0.7 > 0.5 > wrong["score"]
    assert cut["status"] == "scored"  # it has room left, so it ended some other way than by its budget
    assert (silent["status"], silent["score"]) == ("unscorable", 0.0)
    assert [one["placed"] for one in found[:2]] == [[len(said) - 1]] * 2
    assert json.loads(good["measures"])["wer"] == 0.0


def test_verls_merger_puts_shards_together_and_the_result_is_opened(
    inside: Inside, spelled: Path, verl_python: str, tmp_path: Path
) -> None:
    actor = tmp_path / "global_step_1" / "actor"
    shutil.copytree(spelled, actor / "huggingface", ignore=shutil.ignore_patterns("*.safetensors"))
    (actor / "fsdp_config.json").write_text(json.dumps({"FSDP_version": 2, "world_size": 2}))
    assert inside("shards", model=str(spelled), folder=str(actor)) > 20
    (actor / "model_world_size_2_rank_1.pt").rename(tmp_path / "away")
    with pytest.raises(ExportError, match=r"lacks 1 of 2 shards, the first model_world_size_2_rank_1\.pt"):
        merge_shards(actor, tmp_path / "merged", python=verl_python)
    (tmp_path / "away").rename(actor / "model_world_size_2_rank_1.pt")
    arguments = ["convert", "merge", str(actor.parent), "--to", str(tmp_path / "merged"), "--python", verl_python]
    shown = CliRunner().invoke(app, arguments)
    assert shown.exit_code == 0, shown.output
    assert "merged from 2 shards" in shown.output
    merged, began = (load_policy("cosyvoice2", folder).model.state_dict() for folder in (tmp_path / "merged", spelled))
    assert merged.keys() == began.keys()
    assert all(torch.equal(merged[name], began[name].bfloat16().float()) for name in began)
