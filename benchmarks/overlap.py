"""What overlap buys: the tiny run with `train.max_lag` 0 and 1, each step against the work of its slowest stage.

A stage's work is the time for which it was busy. A step can take no less than the slowest stage's; what it takes above
that is time in which the slowest stage waited.
"""

import argparse
import tempfile
from dataclasses import dataclass
from pathlib import Path

from measuring import describe_machine

from elocution.config.load import load_config
from elocution.testing.run_directory import read_rows
from elocution.train.loop import train

STAGES = ("rollout", "decode", "score", "learn")


@dataclass(frozen=True)
class Times:
    """Means over steps, s: a step by the clock, and the work of each stage."""

    step: float
    stages: dict[str, float]

    @property
    def over_slowest(self) -> float:
        return self.step / max(self.stages.values())


def measure(max_lag: int, steps: int, skipped: int) -> Times:
    """A run of `steps`; the first `skipped` of them, which fill the pipeline, and the last, which drains it, are left out."""
    lag = [f"train.max_lag={max_lag}", "algorithm.correction=token_truncate"]
    settings = [*lag, f"train.steps={steps}", "eval.sentences=8", "train.save_every=1000"]
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        train(load_config(None, settings), run)
        rows = read_rows(run / "metrics.jsonl")[skipped:-1]
    return Times(
        sum(row["time/step_s"] for row in rows) / len(rows),
        {stage: sum(row[f"time/{stage}_s"] for row in rows) / len(rows) for stage in STAGES},
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=10, help="steps of each run")
    parser.add_argument("--skipped", type=int, default=2, help="steps at the beginning that do not count")
    arguments = parser.parse_args()
    print(describe_machine() + "\n")
    print(f"{'':12}{'step':>10}" + "".join(f"{stage:>10}" for stage in STAGES) + f"{'step / slowest':>18}")
    for max_lag in (0, 1):
        times = measure(max_lag, arguments.steps, arguments.skipped)
        stages = "".join(f"{times.stages[stage]:>8.2f} s" for stage in STAGES)
        print(f"max_lag = {max_lag} {times.step:>8.2f} s{stages}{times.over_slowest:>17.2f}x")


if __name__ == "__main__":
    main()
