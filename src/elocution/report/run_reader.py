"""A run directory as plain values. Reads files only, and tolerates a run that is going on or was killed."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elocution.errors import RunDirectoryError

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
        found = "no such folder" if not path.is_dir() else f"it has no {config.name}"
        raise RunDirectoryError(f"{path} is not a run directory: {found}; `elocution train` makes one")
    environment_path = path / "environment.json"
    environment = json.loads(environment_path.read_text(encoding="utf-8")) if environment_path.is_file() else {}
    metrics, rollouts, evaluations = (
        _read_rows(path / name) for name in ("metrics.jsonl", "rollouts.jsonl", "evaluations.jsonl")
    )
    return RunRecord(
        path=path,
        config=config.read_text(encoding="utf-8"),
        environment=environment,
        metrics=metrics[0],
        rollouts=rollouts[0],
        evaluations=evaluations[0],
        broken_lines=metrics[1] + rollouts[1] + evaluations[1],
    )


def _read_rows(path: Path) -> tuple[tuple[Row, ...], int]:
    rows: list[Row] = []
    broken = 0
    if path.is_file():
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                rows.append(json.loads(line))
            except json.JSONDecodeError:
                broken += 1
    return tuple(rows), broken
