"""Another Python, of an environment beside this one: what this environment adds to its path does not belong there."""

import os

__all__ = ["OWN_VARIABLES", "variables_for"]

OWN_VARIABLES = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
"""Environment variables that say where this Python finds its packages."""


def variables_for(python: str) -> dict[str, str]:
    """This process's environment variables, as `python` gets them; empty is this Python, which gets them all."""
    removed = OWN_VARIABLES if python else ()
    return {name: value for name, value in os.environ.items() if name not in removed}
