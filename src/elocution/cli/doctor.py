"""`elocution doctor`."""

import json
import os
import platform
import shutil
import socket
import sys
from dataclasses import asdict
from typing import Annotated, Literal

import typer

from elocution.assets import BUILTIN, find_damage
from elocution.cli.probes import Finding, run_probes

__all__ = ["doctor", "examine"]


def doctor(
    recipe: Annotated[
        Literal["cosyvoice2"] | None, typer.Option(help="Count what this recipe needs, its extra, as needed too.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")] = False,
) -> None:
    """Tries every needed part, says what is missing or broken and how to get it; then the status is 1."""
    findings = examine(recipe or "")
    if as_json:
        typer.echo(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        for finding in findings:
            mark = "ok  " if finding.is_fine else ("FAIL" if finding.is_needed else "-   ")
            typer.echo(f"{mark} {finding.subject:<22} {finding.detail}")
    if any(finding.is_needed and not finding.is_fine for finding in findings):
        raise typer.Exit(1)


def examine(needed_extra: str = "") -> list[Finding]:
    """Python, machine, every part tried once, shipped files and ports, in this order; `needed_extra` as in `run_probes`."""
    findings = [
        Finding("python", sys.version_info >= (3, 11), True, f"{platform.python_version()} (3.11 or newer is needed)"),
        Finding("cores", True, True, f"{_usable_cores()} usable"),
        _memory(),
        _disk(),
        *run_probes(needed_extra=needed_extra),
    ]
    for name, path in BUILTIN.items():
        found = path.exists()
        findings.append(Finding(name, found, True, str(path) if found else f"{path} is missing; reinstall elocution"))
    damage = find_damage()
    detail = f"{'; '.join(damage)}; reinstall elocution" if damage else "every checksum agrees"
    return [*findings, Finding("shipped files", not damage, True, detail), _port()]


def _disk() -> Finding:
    try:
        return Finding("free disk here", True, True, f"{shutil.disk_usage('.').free / 2**30:.1f} GiB")
    except OSError as error:
        return Finding("free disk here", False, True, f"the current folder cannot be looked at: {error}")


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


def _memory() -> Finding:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return Finding("memory", total > 2, True, f"{total:.1f} GiB (the tiny recipe needs about 2)")
