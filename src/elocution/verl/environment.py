"""The environment that veRL is installed in, looked at by its own Python."""

import json
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from elocution.errors import MissingDependency
from elocution.other_python import variables_for

__all__ = ["INSTALL", "VerlEnvironment", "find_verl"]

_SOURCE = Path(__file__).resolve().parents[3]
_OURSELVES = shlex.quote(str(_SOURCE)) if (_SOURCE / "pyproject.toml").is_file() else "elocution"

INSTALL = (
    "python -m venv verl-env && verl-env/bin/pip install 'verl[vllm]==0.9.1' TransferQueue cachetools httpx2 tomli-w && "
    f"verl-env/bin/pip install --no-deps {_OURSELVES}"
)
"""The commands that make an environment with veRL, its sampling engine, and what our reward needs there."""

# What veRL's default trainer and our reward import, beyond what veRL declares.
_NEEDED = {
    "transfer_queue": "TransferQueue",
    "cachetools": "cachetools",
    "httpx2": "httpx2",
    "tomli_w": "tomli-w",
    "elocution": "elocution",
}
_LOOK = """
import importlib.metadata, importlib.util, json, sys
try:
    version = importlib.metadata.version("verl")
except importlib.metadata.PackageNotFoundError:
    sys.exit(1)
import torch
lacks = [package for module, package in json.loads(sys.argv[1]).items() if importlib.util.find_spec(module) is None]
engine = importlib.util.find_spec("vllm") is not None
print(json.dumps({"version": version, "gpus": torch.cuda.device_count(), "has_engine": engine, "lacks": lacks}))
"""


@dataclass(frozen=True)
class VerlEnvironment:
    """What a Python has: veRL's version, GPUs that torch sees, whether vLLM is there, packages that are missing."""

    version: str
    gpus: int
    has_engine: bool
    lacks: tuple[str, ...]


def find_verl(python: str) -> VerlEnvironment:
    """What the environment of `python` has; empty means this one.

    Raises: MissingDependency if veRL is not there, or `python` cannot be run.
    """
    command = [python or sys.executable, "-P", "-c", _LOOK, json.dumps(_NEEDED)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=variables_for(python))
    except OSError as error:
        raise MissingDependency(f"verl.python = {python!r} cannot be run: {error}") from error
    if done.returncode:
        where = f"the environment of {python}" if python else "this environment"
        said = f" ({done.stderr.strip().splitlines()[-1]})" if done.stderr.strip() else ""
        raise MissingDependency(f"veRL is not installed in {where}{said}; set verl.python, or run: {INSTALL}")
    found = json.loads(done.stdout.splitlines()[-1])
    return VerlEnvironment(found["version"], found["gpus"], found["has_engine"], tuple(found["lacks"]))
