"""Real veRL for the tests, in an environment of its own; see `make test-verl`."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from elocution.errors import MissingDependency
from elocution.verl.environment import find_verl

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def verl_python() -> str:
    python = os.environ.get("ELOCUTION_VERL_PYTHON", str(ROOT / ".venv-verl" / "bin" / "python"))
    try:
        found = find_verl(python)
    except MissingDependency as error:
        pytest.skip(f"needs a Python with veRL; run `make test-verl` ({error})")
    assert not found.lacks, f"{python} lacks {found.lacks}"
    return python


@pytest.fixture(scope="session")
def inside(verl_python: str) -> Callable[..., Any]:
    """Called as (task, **arguments): runs a task of `inside_verl.py` with veRL's Python and gives back what it found."""

    def run(task: str, **arguments: Any) -> Any:
        command = [verl_python, str(Path(__file__).parent / "inside_verl.py"), task, json.dumps(arguments, default=str)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return json.loads(done.stdout.splitlines()[-1])

    return run
