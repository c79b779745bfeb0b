"""Tables of swappable parts: a name, or an import path, becomes a class that is imported only then.

What a user's own class does wrong while it is imported or built ends in one error that names the part.
"""

import importlib
import traceback
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, TypeVar

from elocution.errors import ConfigError, ElocutionError

__all__ = ["build_part", "describe_failure", "import_part"]

Part = TypeVar("Part")


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
    except (Exception, SystemExit) as error:  # the user's module may fail in any way while it is imported
        raise ConfigError(f"cannot import the {kind} {target!r}: {type(error).__name__}: {error}") from error
    missing = [method for method in methods if not callable(getattr(part, method, None))]
    if missing or not isinstance(part, type):
        reason = f"has no {', '.join(missing)}" if missing else "is no class"
        raise ConfigError(f"{target!r} cannot be a {kind}: it {reason}")
    return part


def build_part(kind: str, name: str, build: Callable[[], Part], *, attributes: Sequence[str] = ()) -> Part:
    """What `build` makes of the class that `import_part` gave for `name`.

    Raises: ConfigError naming the part if that fails or `attributes` are missing from it; errors that say themselves
    what they are pass as they are.
    """
    try:
        part = build()
        missing = [attribute for attribute in attributes if not hasattr(part, attribute)]
    except ElocutionError:
        raise
    except (Exception, SystemExit) as error:  # the user's class may fail in any way
        raise ConfigError(f"cannot build the {kind} {name!r}: {describe_failure(error)}") from error
    if missing:
        raise ConfigError(f"{name!r} cannot be a {kind}: what it builds has no {', '.join(missing)}")
    return part


def describe_failure(error: BaseException) -> str:
    """Kind, message and place of an error in code that is not ours."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({place.filename}:{place.lineno})"
