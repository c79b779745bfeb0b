"""The config in veRL's words, and what is refused; veRL itself resolves the words in tests/real_verl."""

from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
from pydantic import BaseModel

import elocution
from elocution.config.load import load_config
from elocution.config.tree import RunConfig
from elocution.errors import ConfigError
from elocution.verl.keys import READ, SAID, UNREAD, check_expressible
from elocution.verl.overrides import VerlFiles, check_arithmetic, hydra_overrides

CONFIGS = Path(elocution.__file__).parent / "configs" / "cosyvoice2"
FILES = VerlFiles(
    Path("/m/hf"), Path("/d/train.parquet"), Path("/d/it's.parquet"), Path("/r/config.toml"), Path("/r/ckpt"), 512
)


def published(*overrides: str) -> RunConfig:
    return load_config(CONFIGS / "published.toml", ["verl.micro_batch_per_gpu=4", *overrides])


def words(config: RunConfig) -> dict[str, str]:
    return dict(override.split("=", 1) for override in hydra_overrides(config, FILES))


def test_s87_the_published_recipe_becomes_the_published_overrides() -> None:
    found = words(published("verl.top_k=25", "verl.top_p=0.95"))
    assert {
        "algorithm.adv_estimator": "grpo",
        "algorithm.norm_adv_by_std_in_grpo": "true",
        "data.train_batch_size": "32",
        "data.max_prompt_length": "1024",
        "data.max_response_length": "512",
        "data.truncation": "error",
        "actor_rollout_ref.actor.use_kl_loss": "false",
        "actor_rollout_ref.actor.optim.lr": "1e-06",
        "actor_rollout_ref.actor.ppo_mini_batch_size": "32",
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": "4",
        "actor_rollout_ref.actor.clip_ratio_low": "0.2",
        "actor_rollout_ref.actor.clip_ratio_high": "0.2",
        "actor_rollout_ref.actor.clip_ratio_c": "3.0",
        "actor_rollout_ref.rollout.n": "4",
        "actor_rollout_ref.rollout.temperature": "0.8",
        "actor_rollout_ref.rollout.top_k": "25",
        "actor_rollout_ref.rollout.top_p": "0.95",
        "actor_rollout_ref.rollout.gpu_memory_utilization": "0.6",
        "trainer.n_gpus_per_node": "8",
        "trainer.total_training_steps": "2500",
        "trainer.save_freq": "100",
        "trainer.test_freq": "100",
    }.items() <= found.items()


def test_the_dapo_variant_filters_groups_and_cuts_a_step_in_two() -> None:
    found = words(load_config(CONFIGS / "dapo.toml"))
    assert found["algorithm.filter_groups.enable"] == "true"
    assert found["algorithm.filter_groups.max_num_gen_batches"] == "10"
    assert found["actor_rollout_ref.actor.ppo_mini_batch_size"] == "16"
    assert found["actor_rollout_ref.actor.clip_ratio_high"] == "0.28"
    assert found["actor_rollout_ref.rollout.top_k"] == "-1"


def test_a_kl_without_a_dual_clip_an_adapter_and_a_correction_are_said_in_its_words() -> None:
    config = published(
        "algorithm.kl_coef=0.01",
        "algorithm.kl_estimate=k2",
        "algorithm.dual_clip=0",
        "algorithm.correction=token_truncate",
        "algorithm.aggregation=fixed",
        "algorithm.fixed_length=500",
        "model.lora.rank=8",
        'model.lora.target_modules=["q_proj","v_proj"]',
        "train.betas=[0.8, 0.99]",
    )
    found = words(config)
    assert found["actor_rollout_ref.actor.use_kl_loss"] == "true"
    assert found["actor_rollout_ref.actor.kl_loss_type"] == "k2"
    assert float(found["actor_rollout_ref.actor.clip_ratio_c"]) > 1e6
    assert found["algorithm.rollout_correction.rollout_is"] == "token"
    assert found["actor_rollout_ref.actor.loss_scale_factor"] == "500"
    assert found["actor_rollout_ref.model.target_modules"] == "[q_proj,v_proj]"
    assert found["actor_rollout_ref.actor.optim.betas"] == "[0.8,0.99]"


def test_paths_are_quoted_and_a_users_overrides_come_last() -> None:
    overrides = hydra_overrides(published('verl.overrides=["trainer.logger=[console,wandb]"]'), FILES)
    assert overrides[-1] == "trainer.logger=[console,wandb]"
    assert r"data.val_files='/d/it\'s.parquet'" in overrides


@pytest.mark.parametrize(
    ("override", "key"),
    [
        ("model.family=llasa", "model.family = 'llasa'"),
        ("reward.type=composite", "reward.type = 'composite'"),
        ("algorithm.loss=weighted_ce", "algorithm.loss = 'weighted_ce'"),
        ("algorithm.kl_estimate=exact", "algorithm.kl_estimate = 'exact'"),
        ("algorithm.truncated=mask", "algorithm.truncated = 'mask'"),
        ("algorithm.whole_stops=true", "algorithm.whole_stops = True"),
        ("rollout.temperature_schedule=linear", "rollout.temperature_schedule = 'linear'"),
        ("algorithm.advantage=reinforce_pp", "algorithm.advantage = 'reinforce_pp'"),
        ("train.lr_schedule=linear", "train.lr_schedule = 'linear' (veRL: 'constant', 'cosine')"),
        ("model.language_tags={yue='YUE'}", "model.language_tags.yue = 'YUE'"),
    ],
)
def test_what_verl_cannot_do_is_refused_by_its_key(override: str, key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_expressible(published(override))
    assert key in str(caught.value)


def test_every_refusal_is_named_at_once() -> None:
    with pytest.raises(ConfigError, match=r"algorithm\.loss.*algorithm\.truncated"):
        check_expressible(published("algorithm.loss=weighted_ce", "algorithm.truncated=mask"))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("train.minibatches=3",), "no multiple of train.minibatches = 3"),
        (("verl.gpus_per_node=7",), "must be a multiple of 7 GPUs"),
        (("verl.nodes=2", "verl.micro_batch_per_gpu=16"), "verl.micro_batch_per_gpu = 16"),
        (("verl.tensor_parallel=3",), "verl.tensor_parallel = 3"),
    ],
)
def test_numbers_that_do_not_divide_are_found_before_anything_starts(overrides: tuple[str, ...], message: str) -> None:
    check_arithmetic(published())
    with pytest.raises(ConfigError) as caught:
        check_arithmetic(published(*overrides))
    assert message in str(caught.value)


def leaves(section: BaseModel, prefix: str = "") -> Iterator[str]:
    """Full names of the keys of `section` that are no sections."""
    for key in type(section).model_fields:
        value = getattr(section, key)
        if isinstance(value, BaseModel):
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield prefix + key


KEYS = tuple(leaves(RunConfig()))


def with_another(section: BaseModel, key: str) -> Any:
    """`section` with another value of `key`; its validators do not see it."""
    name, _, below = key.partition(".")
    value = getattr(section, name)
    other = with_another(value, below) if below else another(value, type(section).model_fields[name].annotation)
    return section.model_copy(update={name: other})


def another(value: Any, annotation: Any) -> Any:
    if get_origin(annotation) is Literal:
        return next(one for one in reversed(get_args(annotation)) if one != value)
    match value:
        case bool():
            return not value
        case int() | float():
            return value * 2 or 2
        case tuple():
            return (*value, "another=1") if not value or isinstance(value[0], str) else tuple(one / 2 for one in value)
        case dict():
            return {**value, "another": "another"}
        case _:
            return f"{value}another"


def refusal(config: RunConfig) -> str:
    """Why `config` is refused; empty if it is not."""
    try:
        check_expressible(config)
    except ConfigError as error:
        return str(error)
    return ""


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")  # a text for an entry of any table
@pytest.mark.parametrize("key", KEYS)
def test_every_key_is_said_to_verl_or_known_or_refused(key: str) -> None:
    config = published("model.lora.rank=8", "train.lr_schedule=cosine", "train.lr_min=1e-7")
    changed = with_another(config, key)
    if refused := refusal(changed):
        assert f"{key} = " in refused or f"{key}.another = " in refused
    elif key in SAID:
        assert words(changed) != words(config)
    else:
        assert any(fnmatchcase(key, pattern) for pattern in READ | UNREAD)


def test_every_name_of_a_table_is_a_key() -> None:
    keys = {*KEYS, "eval.sets.mine"}
    for pattern in SAID | READ | UNREAD:
        assert any(fnmatchcase(key, pattern) for key in keys), pattern


def test_a_cosine_schedule_goes_as_far_down_as_ours() -> None:
    found = words(published("train.learning_rate=1e-5", "train.lr_schedule=cosine", "train.lr_min=1e-6"))
    assert found["actor_rollout_ref.actor.optim.lr_scheduler_type"] == "cosine"
    assert float(found["actor_rollout_ref.actor.optim.min_lr_ratio"]) == pytest.approx(0.1)
