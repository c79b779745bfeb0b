"""Where a run came from: its config against the published recipe of its family, and its environment, as rows."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from elocution.config.load import different_keys, load_config
from elocution.config.tree import RunConfig
from elocution.errors import ConfigError

__all__ = ["ConfigDifferences", "compare_with_recipe", "flatten"]


@dataclass(frozen=True)
class ConfigDifferences:
    """Keys with their values in the recipe and in the run; `problem` says why there are none, where they cannot be had."""

    recipe: str
    rows: tuple[tuple[str, str, str], ...] = ()
    problem: str = ""


def compare_with_recipe(config_path: Path) -> ConfigDifferences:
    """The config in `config_path` against `configs/FAMILY/published.toml`, or the defaults where nothing was published."""
    try:
        config = load_config(config_path)
    except ConfigError as error:
        return ConfigDifferences("", problem=f"This version cannot read the config: {error}")
    name = f"configs/{config.model.family}/published.toml"
    published = Path(str(files("elocution") / name))
    if published.is_file():
        recipe = load_config(published)
    else:
        name, recipe = f"the defaults, since nothing is published for {config.model.family}", RunConfig()
    sides = [dict(flatten(each.model_dump(mode="json"))) for each in (recipe, config)]
    keys = different_keys(recipe, config)
    rows = [(key, *(_below(side, key) for side in sides)) for key in keys]
    return ConfigDifferences(name, tuple((key, one, other) for key, one, other in rows))


def flatten(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Dotted names and values as text, in the order of the tree."""
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield prefix + key, "not set" if value in (None, "", [], {}) else str(value)


def _below(values: Mapping[str, str], key: str) -> str:
    """The value of `key`, or all those below it, where one side has a table that the other lacks."""
    if key in values:
        return values[key]
    below = [
        f"{name.removeprefix(f'{key}.')} = {value}" for name, value in values.items() if name.startswith(f"{key}.")
    ]
    return ", ".join(below) or "not set"
