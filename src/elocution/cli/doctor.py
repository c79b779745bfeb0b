"""`elocution doctor`."""

import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import shutil
import socket
import sys
from dataclasses import asdict, dataclass
from typing import Annotated

import typer

from elocution.assets import BUILTIN, find_damage

__all__ = ["Finding", "doctor", "examine"]

# What each optional set of packages brings, and a module that shows it is there.
_EXTRAS = {
    "serve": ("fastapi", "uvicorn", "prometheus_client"),
    "tiny-build": ("hibari", "sklearn"),
    "dev": ("pytest", "hypothesis", "mypy"),
}


@dataclass(frozen=True)
class Finding:
    """One line of the examination; `is_needed` and not `is_fine` makes the whole examination fail."""

    subject: str
    is_fine: bool
    is_needed: bool
    detail: str


def doctor(as_json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")] = False) -> None:
    """Says what is installed, what is missing and how to get it; the status is 1 if something needed is missing."""
    findings = examine()
    if as_json:
        typer.echo(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        for finding in findings:
            mark = "ok  " if finding.is_fine else ("MISS" if finding.is_needed else "-   ")
            typer.echo(f"{mark} {finding.subject:<22} {finding.detail}")
    if any(finding.is_needed and not finding.is_fine for finding in findings):
        raise typer.Exit(1)


def examine() -> list[Finding]:
    """Python, machine, packages, extras, shipped files and ports, in this order."""
    findings = [
        Finding("python", sys.version_info >= (3, 11), True, f"{platform.python_version()} (3.11 or newer is needed)"),
        Finding("cores", True, True, f"{_usable_cores()} usable"),
        _memory(),
        Finding("free disk here", True, True, f"{shutil.disk_usage('.').free / 2**30:.1f} GiB"),
    ]
    for package in _core_packages():
        version = _version(package)
        findings.append(Finding(package, version is not None, True, version or f"missing: pip install {package}"))
    findings.append(_gpu())
    for extra, modules in _EXTRAS.items():
        absent = [module for module in modules if importlib.util.find_spec(module) is None]
        detail = f"missing {', '.join(absent)}: pip install 'elocution[{extra}]'" if absent else "installed"
        findings.append(Finding(f"extra {extra}", not absent, False, detail))
    for name, path in BUILTIN.items():
        found = path.exists()
        findings.append(Finding(name, found, True, str(path) if found else f"{path} is missing; reinstall elocution"))
    damage = find_damage()
    detail = f"{'; '.join(damage)}; reinstall elocution" if damage else "every checksum agrees"
    return [*findings, Finding("shipped files", not damage, True, detail), _port()]


def _core_packages() -> list[str]:
    """The packages that elocution itself requires, extras left out; empty where its metadata is not installed."""
    try:
        requirements = importlib.metadata.requires("elocution") or []
    except importlib.metadata.PackageNotFoundError:
        return []
    return [re.split(r"[^\w.-]", line, maxsplit=1)[0] for line in requirements if "extra ==" not in line]


def _usable_cores() -> int:
    # Only Linux tells how many cores this process may use.
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def _port() -> Finding:
    try:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            port = listener.getsockname()[1]
            return Finding("local ports", True, False, f"127.0.0.1 can be listened on (tried {port})")
    except OSError as error:
        return Finding("local ports", False, False, f"cannot listen on 127.0.0.1: {error}")


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _memory() -> Finding:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return Finding("memory", total > 2, True, f"{total:.1f} GiB (the tiny recipe needs about 2)")


def _gpu() -> Finding:
    if _version("torch") is None:
        return Finding("GPU", False, False, "unknown without torch")
    import torch

    if not torch.cuda.is_available():
        return Finding("GPU", False, False, "none that torch can use; the tiny recipe runs on the CPU")
    names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return Finding("GPU", True, False, ", ".join(names))
