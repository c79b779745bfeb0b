"""Secrets come from the environment, so that no config file, run directory or process list holds one."""

import os

from elocution.errors import ConfigError

__all__ = ["read_secret"]


def read_secret(variable: str, key: str) -> str | None:
    """The value of the environment variable that the config's `key` names; None if it names none.

    Raises: ConfigError if the variable is not set, or empty.
    """
    if not variable:
        return None
    value = os.environ.get(variable, "").strip()
    if not value:
        raise ConfigError(f"{key} names the environment variable {variable}, which is not set or empty")
    return value
