"""Where a run's time goes: how long each stage worked and waited in a step, and which one holds the others up."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

__all__ = ["StageTimes", "advice"]

_REMEDIES = {
    "rollout": "more devices for sampling, or a larger rollout.batch_size",
    "decode": "a device of its own for the codec",
    "score": "more processes (reward.workers) or devices for the scorers",
    "learn": "more devices for the learner",
}
_BUSY = 0.9  # a stage that works for more of the time has nothing to gain from overlap


class StageTimes:
    """Measures one step from its construction on; `busy_s` tells how long each stage has worked so far."""

    def __init__(self, busy_s: Callable[[], Mapping[str, float]]) -> None:
        self._busy_s = busy_s
        self._started, self._before = time.perf_counter(), busy_s()

    def metrics(self) -> dict[str, float]:
        """`time/STAGE_s`, `time/step_s`, and `idle/STAGE`, the share of the step for which a stage waited."""
        step_s = time.perf_counter() - self._started
        worked = {stage: seconds - self._before[stage] for stage, seconds in self._busy_s().items()}
        times = {f"time/{stage}_s": seconds for stage, seconds in worked.items()}
        idle = {f"idle/{stage}": min(1.0, max(0.0, 1 - seconds / step_s)) for stage, seconds in worked.items()}
        return times | {"time/step_s": step_s} | idle


def advice(rows: Sequence[Mapping[str, Any]], *, max_lag: int) -> str | None:
    """One line on which stage to give more to, from the metrics of a run's steps; None if nothing was measured."""
    rows = [row for row in rows if "idle/learn" in row]
    total = sum(row["time/step_s"] for row in rows)
    if not total:
        return None
    busy = {stage: 1 - sum(row[f"idle/{stage}"] * row["time/step_s"] for row in rows) / total for stage in _REMEDIES}
    slowest = max(busy, key=lambda stage: busy[stage])
    shares = ", ".join(f"{stage} {100 * share:.0f} %" for stage, share in busy.items())
    line = f"busy: {shares} of the time; the others wait for {slowest}, which {_REMEDIES[slowest]} would speed up"
    if max_lag == 0 and busy[slowest] < _BUSY:
        line += "; train.max_lag = 1 with algorithm.correction = 'token_truncate' would let the stages work while the learner does"
    return line
