"""Tables of swappable parts: a name, or an import path, becomes a class that is imported only then."""

import importlib
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from elocution.errors import ConfigError

__all__ = ["import_part"]


def import_part(kind: str, name: str, table: Mapping[str, str], *, methods: Sequence[str] = ()) -> Any:
    """The class behind `name`: a row of `table`, or `module:Class` of the user's own.

    Raises: ConfigError naming the nearest row if there is none, the import that failed, or what the class lacks of
    `methods`.
    """
    target = table.get(name, name)
    module_name, _, attribute = target.partition(":")
    if not attribute or not all(part.isidentifier() for part in module_name.split(".")):
        nearest = get_close_matches(name, table, n=1)
        hint = f"; did you mean {nearest[0]!r}?" if nearest else "."
        raise ConfigError(f"there is no {kind} {name!r}{hint} Known: {', '.join(table)}, or module:Class of your own")
    try:
        part = getattr(importlib.import_module(module_name), attribute)
    except Exception as error:  # the user's module may fail in any way while it is imported
        raise ConfigError(f"cannot import the {kind} {target!r}: {type(error).__name__}: {error}") from error
    missing = [method for method in methods if not hasattr(part, method)]
    if missing or not isinstance(part, type):
        reason = f"has no {', '.join(missing)}" if missing else "is no class"
        raise ConfigError(f"{target!r} cannot be a {kind}: it {reason}")
    return part
