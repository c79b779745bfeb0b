"""What a run does about alarms: says them, keeps three examples of each to listen to, and asks to stop."""

import logging
from collections.abc import Mapping
from typing import Any

from elocution.audio import write_wav
from elocution.eval.guards import Alarm, AlarmLevel, base_monitors, check_monitors, monitors_at, worst_examples
from elocution.eval.held_out import Evaluation
from elocution.train.run_directory import RunDirectory

__all__ = ["Guard"]

logger = logging.getLogger(__name__)


class Guard:
    """Compares evaluations within a run with the one before it, which the run directory holds."""

    def __init__(self, run: RunDirectory) -> None:
        self._run = run

    def find(self, evaluation: Evaluation, metrics: Mapping[str, Any]) -> list[Alarm]:
        """The alarms of `evaluation` and of the step whose `metrics` came last.

        A run that was begun without monitors raises none.
        """
        before = next((row for row in self._run.read_rows("evaluations.jsonl") if row.get("name") == "before"), {})
        first = next(iter(self._run.read_rows("metrics.jsonl")), None)
        if "monitors" not in before or first is None:
            return []
        return check_monitors(base_monitors(before, first), monitors_at(evaluation.row, metrics))

    def look(self, evaluation: Evaluation, metrics: Mapping[str, Any]) -> list[Alarm]:
        """What `find` gives, logged and kept in `alarms.jsonl`."""
        alarms = self.find(evaluation, metrics)
        for alarm in alarms:
            logger.warning("%s (%s), step %d", alarm, alarm.level, metrics["step"])
            self._run.append_json(
                "alarms.jsonl",
                {"step": metrics["step"], **alarm.row(), "audio": self._keep(alarm, evaluation, metrics)},
            )
        return alarms

    def _keep(self, alarm: Alarm, evaluation: Evaluation, metrics: Mapping[str, Any]) -> list[str]:
        """Writes examples of what a stopping alarm is about; their files within the run."""
        if alarm.level is not AlarmLevel.STOP:
            return []
        names = []
        for number, rollout in enumerate(worst_examples(alarm, evaluation.rollouts), start=1):
            if rollout.audio is not None:
                names.append(f"audio/alarms/step_{metrics['step']:04d}_{alarm.monitor}_{number}.wav")
                write_wav(self._run.path / names[-1], rollout.audio)
        return names
