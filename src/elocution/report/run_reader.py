"""A run directory as plain values. Reads files only, and tolerates a run that is going on or was killed."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elocution.errors import RunDirectoryError
from elocution.files import read_json_lines

__all__ = ["RECORDS", "Row", "RunRecord", "read_run"]

Row = dict[str, Any]
RECORDS = ("metrics.jsonl", "rollouts.jsonl", "evaluations.jsonl", "alarms.jsonl", "rollbacks.jsonl")
"""The files that grow while a run goes on."""


@dataclass(frozen=True)
class RunRecord:
    """What a run left behind; `broken_lines` counts lines cut short, by a crash or because they are being written.

    `best_step` is the step of the checkpoint that `best` points at, None if there is none.
    """

    path: Path
    config: str
    environment: Row
    metrics: tuple[Row, ...]
    rollouts: tuple[Row, ...]
    evaluations: tuple[Row, ...]
    alarms: tuple[Row, ...]
    rollbacks: tuple[Row, ...]
    broken_lines: int
    best_step: int | None

    @property
    def name(self) -> str:
        return self.path.resolve().name

    def evaluation(self, name: str) -> Row | None:
        """The last evaluation called `name`."""
        return next((row for row in reversed(self.evaluations) if row["name"] == name), None)

    @property
    def before(self) -> Row | None:
        """The evaluation of the base model."""
        return self.evaluation("before")

    @property
    def last(self) -> Row | None:
        """The newest evaluation of what was trained."""
        return next((row for row in reversed(self.evaluations) if row["name"] != "before"), None)

    @property
    def best(self) -> Row | None:
        """The evaluation of the best checkpoint, where that was evaluated within the run."""
        trained = (row for row in reversed(self.evaluations) if row["name"] != "before")
        return next((row for row in trained if row["step"] == self.best_step), None)

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
    records = [read_json_lines(path / name) for name in RECORDS]
    metrics, rollouts, evaluations, alarms, rollbacks = (tuple(rows) for rows, _ in records)
    return RunRecord(
        path=path,
        config=config.read_text(encoding="utf-8", errors="replace"),
        environment=_read_environment(path / "environment.json"),
        metrics=metrics,
        rollouts=rollouts,
        evaluations=evaluations,
        alarms=alarms,
        rollbacks=rollbacks,
        broken_lines=sum(broken for _, broken in records),
        best_step=_best_step(path / "best"),
    )


def _read_environment(path: Path) -> Row:
    """Empty if the file is missing or damaged: the page can do without."""
    try:
        environment = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return environment if isinstance(environment, dict) else {}


def _best_step(link: Path) -> int | None:
    name = link.resolve().name.removeprefix("step_") if link.is_symlink() else ""
    return int(name) if name.isdecimal() else None
