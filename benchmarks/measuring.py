"""What the benchmarks share: the machine in words, and a subject measured in a process of its own."""

import json
import os
import platform
import subprocess
import sys
from importlib.metadata import version
from typing import Any

import torch

__all__ = ["describe_machine", "measure_apart"]


def describe_machine(*packages: str) -> str:
    """Two lines: system and cores; Python, torch and `packages` with their versions."""
    versions = [f"{package} {version(package)}" for package in packages]
    return f"{platform.platform()}, {os.cpu_count()} cores, {torch.get_num_threads()} torch threads\n" + ", ".join(
        [f"python {platform.python_version()}", f"torch {torch.__version__}", *versions]
    )


def measure_apart(script: str, *arguments: str) -> dict[str, Any]:
    """What `script` prints as JSON on its last line when called with `arguments`; its peak memory is its own."""
    done = subprocess.run([sys.executable, script, *arguments], stdout=subprocess.PIPE, text=True, check=True)
    measured: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return measured
