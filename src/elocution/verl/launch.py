"""A run on veRL: what it needs is checked first, then its command is built and, if wanted, resolved by veRL itself."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from elocution.assets import resolve_path
from elocution.config.load import dump_config
from elocution.config.tree import RunConfig
from elocution.data.recipe_rows import OWN_COLUMNS
from elocution.errors import ConfigError, DataError, MissingDependency
from elocution.files import reporting_disk_errors, write_text_atomically
from elocution.other_python import variables_for
from elocution.policies.biased_head import has_head_bias
from elocution.rewards import load_reward
from elocution.rollout.speak import token_budget
from elocution.verl.environment import INSTALL, VerlEnvironment
from elocution.verl.overrides import VerlFiles, hydra_overrides
from elocution.verl.score import CodeScorer

__all__ = ["VerlRun", "check_environment", "check_servers", "plan_run", "resolve_by_verl", "write_config"]


_MAKE = "write one with: elocution data prepare cosyvoice2"


@dataclass(frozen=True)
class VerlRun:
    """The command of a run, and its files."""

    command: tuple[str, ...]
    files: VerlFiles


def plan_run(config: RunConfig, output: Path) -> VerlRun:
    """The run of `config` in the folder `output`; nothing is written.

    Raises: ConfigError if veRL cannot follow the config, or the model has what veRL would drop; DataError if the prompts are
    not the parquet of the recipe.
    """
    model = resolve_path(config.model.path).resolve()
    _check_model(model)
    train, held_out = (resolve_path(value).resolve() for value in (config.data.train, config.data.held_out))
    texts = _read_texts("data.train", train) + _read_texts("data.held_out", held_out)
    rollout = config.rollout
    budget = max(
        token_budget(text, max_codes_per_char=rollout.max_codes_per_char, min_codes=rollout.min_codes) for text in texts
    )
    output = output.resolve()
    files = VerlFiles(model, train, held_out, output / "config.toml", output / "checkpoints", budget)
    overrides = hydra_overrides(config, files)
    return VerlRun((config.verl.python or sys.executable, "-m", "verl.trainer.main_ppo", *overrides), files)


def write_config(run: VerlRun, config: RunConfig) -> None:
    """Writes the resolved config that the reward function reads. Raises: StorageError."""
    folder = run.files.config.parent
    with reporting_disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        write_text_atomically(run.files.config, dump_config(config))


def check_environment(config: RunConfig, found: VerlEnvironment) -> None:
    """Raises: MissingDependency if the environment lacks something; ConfigError if it has fewer GPUs than a node should."""
    lacks = [*found.lacks, *([] if found.has_engine else ["vllm"])]
    if lacks:
        raise MissingDependency(f"the environment of veRL lacks {', '.join(lacks)}; it is made by: {INSTALL}")
    if found.gpus < config.verl.gpus_per_node:
        raise ConfigError(
            f"verl.gpus_per_node = {config.verl.gpus_per_node}, but torch sees {found.gpus} GPUs here; lower it"
        )


def check_servers(config: RunConfig) -> None:
    """Lets every reward server hear the clips of `reward.self_test`, and asks for the model that takes codes.

    Raises: RewardError, RewardUnavailable.
    """
    with load_reward(config.reward):
        CodeScorer(config).close()


def resolve_by_verl(run: VerlRun, python: str) -> str:
    """The whole config that veRL makes of the command, as YAML; needs no GPU and no Ray.

    Raises: ConfigError with what veRL says of an override that it does not know.
    """
    command = [*run.command, "--cfg", "job"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=variables_for(python))
    if done.returncode:
        raise ConfigError(f"veRL refuses the config: {done.stderr.strip()[-1500:]}")
    return done.stdout


def _read_texts(key: str, path: Path) -> list[str]:
    """The texts of a parquet that veRL reads."""
    try:
        from pyarrow import ArrowException, parquet
    except ImportError as error:
        raise MissingDependency.naming("pyarrow", "verl") from error
    try:
        lacking = sorted(set(OWN_COLUMNS) - set(parquet.read_schema(path).names))
        rows = [] if lacking else parquet.read_table(path, columns=["reward_model"])["reward_model"].to_pylist()
    except (OSError, ArrowException) as error:
        raise DataError(f"{key}: {path} cannot be read as parquet: {error}; {_MAKE}") from error
    if lacking or not rows:
        raise DataError(f"{key}: {path} has no {', '.join(lacking) or 'row'}; {_MAKE}")
    return [row["ground_truth"] for row in rows]


def _check_model(folder: Path) -> None:
    if not (folder / "config.json").is_file():
        raise ConfigError(f"model.path: {folder} is no Hugging Face folder; convert llm.pt first: docs/cosyvoice2.md")
    if has_head_bias(folder):
        raise ConfigError(
            f"{folder} has the bias of the speech head, which veRL and vLLM drop without a word; convert it again with: "
            "elocution convert cosyvoice2 to-hf … --bias drop"
        )
