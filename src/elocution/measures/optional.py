"""Packages and checkpoint folders that a measure needs and that need not be there: what to install or set where they are not."""

import contextlib
import importlib
import sys
import types
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from elocution.errors import ConfigError, MissingDependency

__all__ = ["NO_DEPS", "import_optional", "model_file", "model_folder", "without_torchaudio"]

NO_DEPS = "pip install 'elocution[measures]' && pip install --no-deps"
"""How to install packages whose own requirements cannot be met beside this version of torch, or need a compiler."""


def import_optional(module: str, *, package: str, install: str) -> Any:
    """The module of an optional package; what it warns of while it is imported is its authors' business.

    Raises: MissingDependency that says `install` if it, or something that it imports, is absent.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return importlib.import_module(module)
    except ImportError as error:
        lacks = f" (it lacks {error.name})" if error.name and error.name != module.partition(".")[0] else ""
        raise MissingDependency(f"the package {package!r} is not installed{lacks}; run: {install}") from error


@contextlib.contextmanager
def without_torchaudio() -> Iterator[None]:
    """Lets packages be imported that import torchaudio but do not need it here; PyPI's builds of it do not fit every torch."""
    absent = "torchaudio" not in sys.modules
    if absent:
        sys.modules["torchaudio"] = types.ModuleType("torchaudio")
    try:
        yield
    finally:
        if absent:
            del sys.modules["torchaudio"]


def model_folder(path: str, key: str, what: str) -> Path:
    """The folder `path`, which the config names under `key`.

    Raises: ConfigError if there is none.
    """
    if not path:
        raise ConfigError(f"{what} needs a checkpoint folder: set {key}; nothing is downloaded")
    folder = Path(path).expanduser()
    if not folder.is_dir():
        raise ConfigError(f"{key} = {path!r} is no folder, {what} needs one")
    return folder


def model_file(folder: Path, *names: str) -> Path:
    """The first of `names` that is in `folder`.

    Raises: ConfigError if none is.
    """
    for name in names:
        if (folder / name).is_file():
            return folder / name
    found = ", ".join(sorted(entry.name for entry in folder.iterdir())[:8]) or "nothing"
    raise ConfigError(f"{folder} has no {' or '.join(names)}; it has {found}")
