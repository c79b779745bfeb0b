"""TOML file and `--set` overrides -> a checked `RunConfig`, with errors that say what to do."""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from importlib.resources import files
from pathlib import Path
from typing import Any

import tomli_w
from pydantic import BaseModel, ValidationError

from elocution.config.reference import describe_range
from elocution.config.tree import RunConfig
from elocution.errors import ConfigError

__all__ = ["DEFAULT_NAME", "different_keys", "dump_config", "load_config"]

DEFAULT_NAME = "configs/llasa/tiny.toml (embedded)"
_SHOWN = 200  # characters of a value in a message


def load_config(path: Path | None, overrides: Sequence[str] = ()) -> RunConfig:
    """The config in `path` (None: the embedded default) with `section.key=value` overrides applied in order.

    Raises: ConfigError naming file, key, value, and the nearest name or the allowed range.
    """
    name = str(path) if path else DEFAULT_NAME
    text = _read(path)
    try:
        tree = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # thousands of digits or brackets are no TOMLDecodeError
        raise ConfigError(f"{name}: not valid TOML: {error}") from error
    _check_keys(tree, RunConfig, name, text)
    places = {_apply_override(tree, override): _place(override) for override in overrides}
    try:
        return RunConfig.model_validate(tree)
    except ValidationError as error:
        raise ConfigError(_describe(error, name, text, places)) from error


def dump_config(config: RunConfig) -> str:
    """TOML text with every key, defaults included."""
    return tomli_w.dumps(config.model_dump(mode="json"))


def different_keys(one: RunConfig, other: RunConfig) -> list[str]:
    """Full names of the keys that have another value in `other`, in the order of the tree."""
    return _different(one.model_dump(), other.model_dump(), "")


def _different(one: Mapping[str, Any], other: Mapping[str, Any], prefix: str) -> list[str]:
    names: list[str] = []
    for key in [
        *one,
        *(key for key in other if key not in one),
    ]:  # tables such as reward.components have keys of their own
        value, compared = one.get(key), other.get(key)
        if isinstance(value, Mapping) and isinstance(compared, Mapping):
            names += _different(value, compared, f"{prefix}{key}.")
        elif value != compared:
            names.append(prefix + key)
    return names


def _read(path: Path | None) -> str:
    if path is None:
        return (files("elocution") / "configs" / "llasa" / "tiny.toml").read_text(encoding="utf-8")
    try:
        return path.read_text(encoding="utf-8-sig")  # some editors begin a file with a byte order mark
    except FileNotFoundError as error:
        raise ConfigError(f"there is no config file {path}; omit it to use the embedded default") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the config file {path}: {error}") from error


def _apply_override(tree: dict[str, Any], override: str) -> tuple[str, ...]:
    """Sets the value in `tree`; returns the path of its key."""
    key, equals, value = override.partition("=")
    parts = tuple(key.strip().split("."))
    place = _place(override)
    if not equals or not all(parts):
        raise ConfigError(f"{place}: expected section.key=value, for example --set train.steps=10")
    try:
        read = tomllib.loads(f"value = {value.strip()}")
    except tomllib.TOMLDecodeError:
        read = {"value": value.strip()}  # a bare word is a string
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{place}: the value cannot be read: {error}") from error
    if read.keys() != {"value"}:
        raise ConfigError(f"{place}: it holds several lines; give each value its own --set")
    parsed = read["value"]
    branch: dict[str, Any] = {parts[-1]: parsed}
    for part in reversed(parts[:-1]):
        branch = {part: branch}
    _check_keys(branch, RunConfig, place, "")
    node = tree
    for part in parts[:-1]:
        node = node.setdefault(part, {})
        if not isinstance(node, dict):
            raise ConfigError(f"{place}: {part!r} is a value, not a section")
    node[parts[-1]] = parsed
    return parts


def _place(override: str) -> str:
    """An override as a message shows it: on one line, and cut where it is long."""
    shown = override if override.isprintable() else repr(override)
    return f"--set {shown if len(shown) <= _SHOWN else f'{shown[:_SHOWN]}…'}"


def _show(value: object) -> str:
    """`repr`, cut where it is long, also of a number that has more digits than Python prints."""
    try:
        shown = repr(value)
    except (ValueError, RecursionError):
        return f"{type(value).__name__} of enormous size"
    return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"


def _check_keys(
    tree: Mapping[str, Any], model: type[BaseModel], name: str, text: str, section: tuple[str, ...] = ()
) -> None:
    for key, value in tree.items():
        path = (*section, key)
        place, full_name = f"{name}{_line_of(path, text)}", ".".join(path)
        if key not in model.model_fields:
            nearest = get_close_matches(key, model.model_fields, n=1) or _elsewhere(key)
            hint = f"did you mean {nearest[0]!r}?" if nearest else f"known here: {', '.join(model.model_fields)}"
            raise ConfigError(f"{place}: unknown key {_show(full_name)}; {hint}")
        below = _section(model, key)
        if below is not None:
            if not isinstance(value, Mapping):
                raise ConfigError(f"{place}: {full_name!r} is a section, got {_show(value)}")
            _check_keys(value, below, name, text, path)


def _section(model: type[BaseModel], key: str) -> type[BaseModel] | None:
    annotation = model.model_fields[key].annotation
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


def _elsewhere(key: str) -> list[str]:
    """Full names of a key that stands in another section."""
    return [name for name in _full_names(RunConfig) if name.endswith(f".{key}")]


def _full_names(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for key in model.model_fields:
        yield prefix + key
        below = _section(model, key)
        if below is not None:
            yield from _full_names(below, f"{prefix}{key}.")


def _line_of(path: tuple[str, ...], text: str) -> str:
    """`:line` where `path` is first written, as a key or in a section's header; empty if it is not found."""
    section: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), start=1):
        written = line.split("#")[0].strip()
        if written.startswith("["):
            here = section = _key_parts(written.strip("[]"))
        elif "=" in written:
            here = (*section, *_key_parts(written.partition("=")[0]))
        else:
            continue
        if here[: len(path)] == path:
            return f":{number}"
    return ""


def _key_parts(dotted: str) -> tuple[str, ...]:
    return tuple(part.strip().strip("\"'") for part in dotted.split("."))


def _describe(error: ValidationError, name: str, text: str, places: Mapping[tuple[str, ...], str]) -> str:
    """One line a problem, each led by the place that its value came from."""
    lines = []
    for problem in error.errors():
        path = tuple(part for part in problem["loc"] if isinstance(part, str))
        reason = problem["msg"].removeprefix("Value error, ")
        if not path:
            lines.append(f"{', '.join([name, *places.values()])}: {reason}")
            continue
        # A value within a list or table has the place of that.
        roots = (path[:length] for length in range(len(path), 0, -1))
        place = next((places[root] for root in roots if root in places), f"{name}{_line_of(path, text)}")
        allowed = _allowed(path)
        # With one bound, the reason has said it already.
        hint = f" (allowed: {allowed})" if " and " in allowed else ""
        lines.append(f"{place}: {'.'.join(path)} = {_show(problem['input'])}: {reason}{hint}")
    return "\n".join(lines)


def _allowed(path: tuple[str, ...]) -> str:
    """The range of the field at `path`; empty if it has none."""
    model: type[BaseModel] | None = RunConfig
    for key in path[:-1]:
        model = _section(model, key) if model else None
    return describe_range(model.model_fields[path[-1]]) if model and path[-1] in model.model_fields else ""
