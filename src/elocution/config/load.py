"""TOML file and `--set` overrides -> a checked `RunConfig`, with errors that say what to do."""

import tomllib
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from importlib.resources import files
from pathlib import Path
from typing import Any

import tomli_w
from pydantic import BaseModel, ValidationError

from elocution.config.tree import RunConfig
from elocution.errors import ConfigError

__all__ = ["DEFAULT_NAME", "dump_config", "load_config"]

DEFAULT_NAME = "configs/llasa/tiny.toml (embedded)"


def load_config(path: Path | None, overrides: Sequence[str] = ()) -> RunConfig:
    """The config in `path` (None: the embedded default) with `section.key=value` overrides applied in order.

    Raises: ConfigError naming file, key, value, and the nearest name or the allowed range.
    """
    name = str(path) if path else DEFAULT_NAME
    text = _read(path)
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{name}: not valid TOML: {error}") from error
    _check_keys(tree, RunConfig, name, text)
    for override in overrides:
        _apply_override(tree, override)
    try:
        return RunConfig.model_validate(tree)
    except ValidationError as error:
        raise ConfigError(_describe(error, name)) from error


def dump_config(config: RunConfig) -> str:
    """TOML text with every key, defaults included."""
    return tomli_w.dumps(config.model_dump(mode="json"))


def _read(path: Path | None) -> str:
    if path is None:
        return (files("elocution") / "configs" / "llasa" / "tiny.toml").read_text(encoding="utf-8")
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise ConfigError(f"there is no config file {path}; omit it to use the embedded default") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the config file {path}: {error}") from error


def _apply_override(tree: dict[str, Any], override: str) -> None:
    key, equals, value = override.partition("=")
    parts = key.strip().split(".")
    if not equals or not all(parts):
        raise ConfigError(f"--set {override}: expected section.key=value, for example --set train.steps=10")
    try:
        parsed = tomllib.loads(f"value = {value.strip()}")["value"]
    except tomllib.TOMLDecodeError:
        parsed = value.strip()  # a bare word is a string
    branch: dict[str, Any] = {parts[-1]: parsed}
    for part in reversed(parts[:-1]):
        branch = {part: branch}
    _check_keys(branch, RunConfig, f"--set {override}", "")
    node = tree
    for part in parts[:-1]:
        node = node.setdefault(part, {})
    node[parts[-1]] = parsed


def _check_keys(tree: Mapping[str, Any], model: type[BaseModel], name: str, text: str, prefix: str = "") -> None:
    for key, value in tree.items():
        if key not in model.model_fields:
            nearest = get_close_matches(key, model.model_fields, n=1) or _elsewhere(key)
            hint = f"did you mean {nearest[0]!r}?" if nearest else f"known here: {', '.join(model.model_fields)}"
            raise ConfigError(f"{name}{_line_of(key, text)}: unknown key '{prefix}{key}'; {hint}")
        section = model.model_fields[key].annotation
        if isinstance(section, type) and issubclass(section, BaseModel):
            if not isinstance(value, Mapping):
                raise ConfigError(f"{name}{_line_of(key, text)}: '{prefix}{key}' is a section, got {value!r}")
            _check_keys(value, section, name, text, f"{prefix}{key}.")


def _elsewhere(key: str) -> list[str]:
    """Full names of a key that stands in another section."""
    sections = {name: field.annotation for name, field in RunConfig.model_fields.items()}
    return [
        f"{name}.{key}"
        for name, section in sections.items()
        if isinstance(section, type) and issubclass(section, BaseModel) and key in section.model_fields
    ]


def _line_of(key: str, text: str) -> str:
    for number, line in enumerate(text.splitlines(), start=1):
        if line.split("=")[0].strip().strip("[]").split(".")[-1] == key:
            return f":{number}"
    return ""


def _describe(error: ValidationError, name: str) -> str:
    lines = []
    for problem in error.errors():
        key = ".".join(map(str, problem["loc"]))
        reason = problem["msg"].removeprefix("Value error, ")
        lines.append(f"{key} = {problem['input']!r}: {reason}" if key else reason)
    return f"{name}: " + "; ".join(lines)
