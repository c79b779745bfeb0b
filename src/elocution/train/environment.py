"""What a run was made with: versions, machine, commit, command line."""

import importlib.metadata
import json
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import torch

__all__ = ["describe_environment", "package_version", "source_commit"]

_PACKAGES = ("elocution", "torch", "transformers", "peft", "numpy", "pocketsphinx", "hama", "jiwer", "safetensors")


def describe_environment() -> str:
    """JSON text for `environment.json`; a package that is not installed has version null."""
    described = {
        "started_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "argv": sys.argv,
        "commit": source_commit(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpu_count": os.cpu_count(),
        "torch_threads": torch.get_num_threads(),
        "cuda": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "packages": {name: package_version(name) for name in _PACKAGES},
    }
    return json.dumps(described, indent=2) + "\n"


def package_version(package: str) -> str | None:
    """The version of an installed package, None if it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def source_commit() -> str | None:
    """The commit of the source tree, with `-dirty` where it was changed; None outside a git checkout."""
    try:
        return subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
