"""What is checked before veRL starts, and the command; tests/real_verl has veRL resolve it."""

import json
import shlex
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import elocution
from elocution.assets import BUILTIN, resolve_path
from elocution.cli.main import app
from elocution.config.load import load_config
from elocution.config.tree import RunConfig
from elocution.data.recipe import SplitSettings, prepare_recipe
from elocution.data.recipe_rows import RecipeSettings
from elocution.errors import ConfigError, DataError, ExportError, MissingDependency, RewardUnavailable
from elocution.export.cosyvoice import to_huggingface
from elocution.testing.reward_server import running_reward_server
from elocution.verl.environment import VerlEnvironment, find_verl
from elocution.verl.launch import check_environment, check_servers, plan_run, write_config
from elocution.verl.merge import find_actor

parquet = pytest.importorskip("pyarrow.parquet", reason="needs the extra `data`")

PUBLISHED = Path(elocution.__file__).parent / "configs" / "cosyvoice2" / "published.toml"
WHOLE = VerlEnvironment("0.9.1", gpus=8, has_engine=True, lacks=())


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Model folders with and without the bias, and the parquet of the recipe."""
    folder = tmp_path_factory.mktemp("recipe")
    for bias in ("keep", "drop"):
        to_huggingface(BUILTIN["builtin:tiny-cosyvoice2"], folder / bias, bias=bias)  # type: ignore[arg-type]
    split, settings = SplitSettings(train=20, test=4), RecipeSettings(language="en")
    prepare_recipe(resolve_path("builtin:tiny-train"), folder / "data", split, settings)
    return folder


def settings(made: Path, model: str = "drop", train: str = "train.parquet") -> list[str]:
    return [
        f"model.path={made / model}",
        f"data.train={made / 'data' / train}",
        f"data.held_out={made / 'data' / 'test.parquet'}",
        'data.languages=["en"]',
    ]


def config(made: Path, *overrides: str) -> RunConfig:
    return load_config(PUBLISHED, [*settings(made), *overrides])


def test_the_command_names_the_files_and_the_longest_budget(made: Path, tmp_path: Path) -> None:
    resolved = config(made, "rollout.min_codes=10", "rollout.max_codes_per_char=2")
    planned = plan_run(resolved, tmp_path / "run")
    texts = [
        row["reward_model"]["ground_truth"]
        for part in ("train", "test")
        for row in parquet.read_table(made / "data" / f"{part}.parquet").to_pylist()
    ]
    assert planned.files.budget == 2 * max(len(text) for text in texts) + 1
    assert planned.command[:3] == (sys.executable, "-m", "verl.trainer.main_ppo")
    assert f"data.max_response_length={planned.files.budget}" in planned.command
    assert f"data.train_files='{made / 'data' / 'train.parquet'}'" in planned.command
    assert not (tmp_path / "run").exists()
    write_config(planned, resolved)
    assert (
        f"+reward.custom_reward_function.reward_kwargs.config='{tmp_path / 'run' / 'config.toml'}'" in planned.command
    )
    assert load_config(tmp_path / "run" / "config.toml") == resolved


def test_a_folder_with_the_bias_is_refused_with_the_way_out(made: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--bias drop"):
        plan_run(load_config(PUBLISHED, settings(made, model="keep")), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_prompts_that_are_not_the_recipes_parquet_are_refused(made: Path, tmp_path: Path) -> None:
    rows = parquet.read_table(made / "data" / "train.parquet").drop_columns(["extra_info", "ability"])
    parquet.write_table(rows, made / "data" / "cut.parquet")
    with pytest.raises(DataError, match=r"cut\.parquet has no ability, extra_info; .*data prepare cosyvoice2"):
        plan_run(load_config(PUBLISHED, settings(made, train="cut.parquet")), tmp_path / "run")
    (made / "data" / "lines.jsonl").write_text('{"text": "one"}\n')
    with pytest.raises(DataError, match=r"lines\.jsonl cannot be read as parquet"):
        plan_run(load_config(PUBLISHED, settings(made, train="lines.jsonl")), tmp_path / "run")


def test_an_environment_that_lacks_something_or_gpus_is_named(made: Path) -> None:
    resolved = config(made)
    check_environment(resolved, WHOLE)
    with pytest.raises(MissingDependency, match=r"lacks httpx2, vllm; .*pip install"):
        check_environment(resolved, VerlEnvironment("0.9.1", 8, has_engine=False, lacks=("httpx2",)))
    with pytest.raises(ConfigError, match=r"verl\.gpus_per_node = 8, but torch sees 2 GPUs"):
        check_environment(resolved, VerlEnvironment("0.9.1", 2, has_engine=True, lacks=()))


def test_a_python_without_verl_or_that_is_none_is_named_with_the_install_line() -> None:
    with pytest.raises(MissingDependency, match=r"veRL is not installed in this environment.*verl-env/bin/pip install"):
        find_verl("")
    with pytest.raises(MissingDependency, match="cannot be run"):
        find_verl("/no/such/python")


def test_servers_must_hear_and_have_the_model_that_takes_codes(made: Path) -> None:
    with running_reward_server(load_config(None, ["reward.workers=1"])) as url:
        remote = [f'reward.remote.urls=["{url}"]']
        check_servers(config(made, *remote))
    with pytest.raises(RewardUnavailable, match=url):
        check_servers(config(made, *remote, "reward.remote.retries=0", "reward.remote.deadline_s=2"))


def test_a_dry_run_prints_the_command_without_verl(made: Path, tmp_path: Path) -> None:
    arguments = ["verl", str(PUBLISHED), "--dry-run", "--output-dir", str(tmp_path / "run")]
    for setting in settings(made):
        arguments += ["--set", setting]
    shown = CliRunner().invoke(app, arguments)
    assert shown.exit_code == 0, shown.output
    printed = shlex.split(shown.stdout)
    assert printed[:3] == [sys.executable, "-m", "verl.trainer.main_ppo"]
    assert f"data.train_files='{made / 'data' / 'train.parquet'}'" in printed
    assert "note: veRL is not installed" in shown.stderr
    started = CliRunner().invoke(app, [*arguments[:2], *arguments[3:]])
    assert isinstance(started.exception, MissingDependency)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "is no checkpoint of veRL.*name RUN/best"),
        ({"fsdp_config.json": '{"FSDP_version": 2}'}, "says no world_size"),
        (
            {"fsdp_config.json": '{"world_size": 2}', "model_world_size_2_rank_0.pt": ""},
            r"lacks 1 of 2 shards, .*_rank_1\.pt",
        ),
        ({"fsdp_config.json": '{"world_size": 1}', "model_world_size_1_rank_0.pt": ""}, r"no huggingface/config\.json"),
    ],
)
def test_s33_a_checkpoint_of_shards_that_is_not_whole_is_named(
    files: dict[str, str], message: str, tmp_path: Path
) -> None:
    actor = tmp_path / "global_step_1" / "actor"
    actor.mkdir(parents=True)
    for name, text in files.items():
        (actor / name).write_text(text)
    with pytest.raises(ExportError, match=message):
        find_actor(actor.parent)


def test_shards_are_found_in_the_step_or_in_its_actor(tmp_path: Path) -> None:
    actor = tmp_path / "global_step_1" / "actor"
    (actor / "huggingface").mkdir(parents=True)
    (actor / "huggingface" / "config.json").write_text("{}")
    (actor / "fsdp_config.json").write_text(json.dumps({"world_size": 1}))
    (actor / "model_world_size_1_rank_0.pt").touch()
    assert find_actor(actor.parent) == find_actor(actor) == actor
