"""A run directory as plain values. Reads files only, and tolerates a run that is going on or was killed."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elocution.errors import RunDirectoryError
from elocution.files import read_json_lines

__all__ = ["RunRecord", "read_run"]

Row = dict[str, Any]


@dataclass(frozen=True)
class RunRecord:
    """What a run left behind; `broken_lines` counts lines cut short by a crash."""

    path: Path
    config: str
    environment: Row
    metrics: tuple[Row, ...]
    rollouts: tuple[Row, ...]
    evaluations: tuple[Row, ...]
    broken_lines: int

    def evaluation(self, name: str) -> Row | None:
        """The last evaluation called `name`."""
        return next((row for row in reversed(self.evaluations) if row["name"] == name), None)

    def series(self, key: str) -> tuple[list[int], list[float]]:
        """Steps and values of a metric, where it was measured."""
        known = [(row["step"], row[key]) for row in self.metrics if isinstance(row.get(key), int | float)]
        return [step for step, _ in known], [float(value) for _, value in known]


def read_run(path: Path) -> RunRecord:
    """Reads a run directory.

    Raises: RunDirectoryError if `path` is none.
    """
    config = path / "config.toml"
    if not config.is_file():
        found = (
            ("it is a file" if path.exists() else "no such folder") if not path.is_dir() else f"it has no {config.name}"
        )
        raise RunDirectoryError(f"{path} is not a run directory: {found}; `elocution train` makes one")
    metrics, rollouts, evaluations = (
        read_json_lines(path / name) for name in ("metrics.jsonl", "rollouts.jsonl", "evaluations.jsonl")
    )
    return RunRecord(
        path=path,
        config=config.read_text(encoding="utf-8", errors="replace"),
        environment=_read_environment(path / "environment.json"),
        metrics=tuple(metrics[0]),
        rollouts=tuple(rollouts[0]),
        evaluations=tuple(evaluations[0]),
        broken_lines=metrics[1] + rollouts[1] + evaluations[1],
    )


def _read_environment(path: Path) -> Row:
    """Empty if the file is missing or damaged: the page can do without."""
    try:
        environment = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return environment if isinstance(environment, dict) else {}
