"""A reward in a file of its own, JSON or TOML: short names for what recipes of this kind vary, read as overrides of `[reward]`."""

import json
import tomllib
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from elocution.config.rewards import RewardConfig
from elocution.errors import ConfigError

__all__ = ["SHORT_NAMES", "read_reward_file"]

SHORT_NAMES = {
    "alpha_w": "alpha_wer",
    "alpha_n": "alpha_nll",
    "lambda_w": "lambda_wer",
    "lambda_n": "lambda_nll",
    "normaliser": "normalizer",
    "recogniser": "asr",
    "recognizer": "asr",
}


def read_reward_file(path: Path) -> list[str]:
    """Overrides `reward.key=value` for `load_config`, in the order of the file.

    Keys are those of `[reward]` that hold one value, or a row of `SHORT_NAMES`.

    Raises: ConfigError naming file, key and value.
    """
    values: dict[str, Any] = {}
    for name, value in _read(path).items():
        key = SHORT_NAMES.get(name, name)
        known = [field for field in RewardConfig.model_fields if _is_plain(RewardConfig(), field)]
        if key not in known:
            nearest = get_close_matches(name, [*known, *SHORT_NAMES], n=1)
            hint = f"did you mean {nearest[0]!r}?" if nearest else f"known are {', '.join([*SHORT_NAMES, *known])}"
            raise ConfigError(f"{path}: unknown key {name!r:.80}; {hint}")
        if key in values:
            raise ConfigError(f"{path}: {name!r} says again what {key!r} has said; keep one of them")
        values[key] = float(value) if type(value) is int and isinstance(getattr(RewardConfig(), key), float) else value
    try:
        RewardConfig.model_validate(values)
    except ValidationError as error:
        problems = (
            (".".join(map(str, problem["loc"])), problem["input"], problem["msg"].removeprefix("Value error, "))
            for problem in error.errors()
        )
        raise ConfigError(
            "\n".join(
                f"{path}: {key} = {given!r:.80}: {reason}" if key else f"{path}: {reason}"
                for key, given, reason in problems
            )
        ) from error
    return [f"reward.{key}={json.dumps(value)}" for key, value in values.items()]


def _is_plain(config: RewardConfig, field: str) -> bool:
    return isinstance(getattr(config, field), str | int | float)


def _read(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8-sig")
        found = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except OSError as error:
        raise ConfigError(f"cannot read the reward config {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        kind = "TOML" if path.suffix == ".toml" else "JSON"
        raise ConfigError(f"{path}: not valid {kind}: {error}") from error
    if not isinstance(found, dict):
        raise ConfigError(f"{path} must hold an object of keys and values, found {type(found).__name__}")
    return found
