"""Tables of swappable parts: a name, or an import path, becomes a class that is imported only then."""

import importlib
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from elocution.errors import ConfigError

__all__ = ["import_part"]


def import_part(kind: str, name: str, table: Mapping[str, str]) -> Any:
    """The class behind `name`: a row of `table`, or `module:Class` of the user's own.

    Raises: ConfigError naming the nearest row if there is none, or the import that failed.
    """
    target = table.get(name, name)
    module_name, _, attribute = target.partition(":")
    if not attribute:
        nearest = get_close_matches(name, table, n=1)
        hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
        raise ConfigError(f"there is no {kind} {name!r}{hint} Known: {', '.join(table)}, or module:Class of your own")
    try:
        return getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"cannot import the {kind} {target!r}: {error}") from error
