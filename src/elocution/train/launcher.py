"""What a launcher has started, and whether that is what it was asked for. Reads the environment; connects nothing."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from elocution.errors import WorldError

__all__ = ["Place", "asked_of_accelerate", "find_place"]

_NUM_PROCESSES = re.compile(r"--num[_-]processes")
_HOW = "torchrun --nproc-per-node {count} -m elocution train ..."


@dataclass(frozen=True)
class Place:
    """Which of a run's processes this is; `local_rank` counts those of its machine."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1


def find_place(environment: Mapping[str, str], launched_by: list[str] | None = None) -> Place:
    """The place that `torchrun` or `accelerate launch` has written into `environment`.

    `launched_by` is the command line of the parent process, by default as the system tells it.

    Raises: WorldError if the variables are incomplete or contradict each other, or accelerate was asked for several
    processes and started one, as it does on a CPU.
    """
    size = _number(environment, "WORLD_SIZE", 1)
    rank, local_rank = _number(environment, "RANK", None), _number(environment, "LOCAL_RANK", None)
    if size is None or size < 1:
        raise WorldError(f"WORLD_SIZE = {environment.get('WORLD_SIZE')!r} must be 1 or more")
    if size == 1:
        asked = asked_of_accelerate(environment, _parent() if launched_by is None else launched_by)
        if asked > 1:
            raise WorldError(
                f"accelerate launch was asked for {asked} processes and started one: on a CPU it starts no more. "
                f"Use {_HOW.format(count=asked)}"
            )
    elif rank is None or local_rank is None:
        raise WorldError(
            f"WORLD_SIZE = {size} asks for {size} processes, but RANK or LOCAL_RANK does not say which this one is; "
            f"start all of them with {_HOW.format(count=size)}, or unset WORLD_SIZE"
        )
    rank, local_rank = rank or 0, local_rank or 0
    if not 0 <= rank < size:
        raise WorldError(f"RANK = {rank} must lie in 0 to {size - 1}, for WORLD_SIZE = {size}")
    return Place(rank, size, local_rank, _number(environment, "LOCAL_WORLD_SIZE", size) or size)


def asked_of_accelerate(environment: Mapping[str, str], launched_by: list[str]) -> int:
    """How many processes `accelerate launch` was asked for by its command line; 1 without one.

    accelerate does not hand the number on: its own command line, the parent's, is the only trace.
    """
    if not any(name.startswith("ACCELERATE_") for name in environment) or "launch" not in launched_by:
        return 1
    for index, word in enumerate(launched_by):
        option, _, value = word.partition("=")
        if _NUM_PROCESSES.fullmatch(option):
            value = value or (launched_by[index + 1] if index + 1 < len(launched_by) else "")
            return int(value) if value.isdecimal() else 1
    return 1


def _parent() -> list[str]:
    """The parent's command line; nothing where the system has no /proc."""
    path = Path(f"/proc/{os.getppid()}/cmdline")
    return path.read_text(encoding="utf-8", errors="replace").split("\0") if path.is_file() else []


def _number(environment: Mapping[str, str], name: str, default: int | None) -> int | None:
    value = environment.get(name)
    if value is None:
        return default
    try:
        return int(value)
    except ValueError as error:
        raise WorldError(f"the environment variable {name} = {value!r} must be a number") from error
