"""The folder of one evaluation: its plan, a line for each clip as soon as that is scored, and at the end its result.

Each process appends to files of its own, `clips-RANK.jsonl` and `timings-RANK.jsonl`; the first one merges them.
"""

import fcntl
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from elocution.errors import EvaluationError
from elocution.eval.clips import ClipResult
from elocution.files import read_json_lines, reporting_disk_errors, write_text_atomically

__all__ = ["EvaluationFolder", "read_clips", "read_result"]

Row = dict[str, Any]


class EvaluationFolder:
    """An evaluation's folder, locked for one call. Use as a context manager, in the first process; the others only append.

    Raises: EvaluationError on entry if it holds another evaluation, or another call writes in it; StorageError if it
    cannot be written.
    """

    def __init__(self, path: Path, plan: Mapping[str, Any], *, rank: int = 0) -> None:
        self.path = path
        self._plan, self._rank = plan, rank
        self._lock: IO[str] | None = None

    def __enter__(self) -> Self:
        if self._rank:
            return self
        with reporting_disk_errors(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = (self.path / ".lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self._lock.close()
            raise EvaluationError(f"another call is writing the evaluation {self.path}") from error
        try:
            self._check_plan()
        except BaseException:
            self._lock.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._lock is not None:
            self._lock.close()

    def _check_plan(self) -> None:
        file = self.path / "plan.json"
        plan = json.loads(json.dumps(self._plan))
        if not file.is_file():
            if others := sorted(path.name for path in self.path.iterdir() if path.name != ".lock"):
                raise EvaluationError(f"{self.path} already holds other files ({others[0]}); choose another --output")
            write_text_atomically(file, json.dumps(plan, indent=2, ensure_ascii=False) + "\n")
            return
        known = json.loads(file.read_text(encoding="utf-8"))
        if different := sorted(key for key in plan.keys() | known.keys() if plan.get(key) != known.get(key)):
            raise EvaluationError(
                f"{self.path} holds an evaluation with another {', '.join(different)}; choose another --output"
            )

    def append_clip(self, clip: ClipResult) -> None:
        """Adds the line of a clip."""
        self._append("clips", clip.row())

    def append_timing(self, timing: Mapping[str, float]) -> None:
        """Adds a line that says how long something took."""
        self._append("timings", dict(timing))

    def _append(self, name: str, row: Row) -> None:
        path = self.path / f"{name}-{self._rank}.jsonl"
        line = json.dumps(row, ensure_ascii=False, allow_nan=False).encode() + b"\n"
        with reporting_disk_errors(path), path.open("ab+") as stream:
            if stream.tell():
                stream.seek(-1, os.SEEK_END)
                if stream.read() != b"\n":  # a line that a crash cut short must not take this one with it
                    line = b"\n" + line
            stream.write(line)

    def clips(self) -> dict[tuple[str, int], ClipResult]:
        """The clips that are scored, by item and seed; those that the recogniser failed on are not, and come again."""
        return {clip.key: clip for clip in map(ClipResult.from_row, self._rows("clips")) if clip.is_scored}

    def timings(self) -> list[Row]:
        """What `append` was told of times, by all calls so far."""
        return self._rows("timings")

    def failed(self) -> dict[tuple[str, int], ClipResult]:
        """The clips that could not be scored, as they were last tried."""
        scored = self.clips()
        return {clip.key: clip for clip in map(ClipResult.from_row, self._rows("clips")) if clip.key not in scored}

    def _rows(self, name: str) -> list[Row]:
        files = sorted(self.path.glob(f"{name}*.jsonl"))
        return [row for file in files for row in read_json_lines(file)[0]]

    def finish(self, clips: Sequence[ClipResult], result: Mapping[str, Any]) -> None:
        """Writes `clips.jsonl` with `clips`, `timings.jsonl` and `result.json`; the files of single processes go."""
        timings = self.timings()
        for name, rows in (("clips", [clip.row() for clip in clips]), ("timings", timings)):
            text = "".join(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n" for row in rows)
            write_text_atomically(self.path / f"{name}.jsonl", text)
            for file in self.path.glob(f"{name}-*.jsonl"):
                file.unlink()
        write_text_atomically(
            self.path / "result.json", json.dumps(result, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        )


def read_result(path: Path) -> Row:
    """The result of the evaluation in the folder `path`.

    Raises: EvaluationError if there is none, or it is not finished.
    """
    file = path / "result.json"
    try:
        result = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise EvaluationError(f"{path} holds no finished evaluation: {error}") from error
    if not isinstance(result, dict) or "plan" not in result:
        raise EvaluationError(f"{file} is no result of elocution eval")
    return result


def read_clips(path: Path) -> list[ClipResult]:
    """The clips of the finished evaluation in the folder `path`."""
    return [ClipResult.from_row(row) for row in read_json_lines(path / "clips.jsonl")[0]]
