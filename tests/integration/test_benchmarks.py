"""That the benchmarks run; their figures belong into docs/performance.md, measured by hand on a quiet machine."""

import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.slow
def test_the_learners_benchmark_compares_steps_whose_gradients_agree() -> None:
    command = [sys.executable, str(BENCHMARKS / "learner.py"), "--size", "3m", "--workload", "text"]
    done = subprocess.run([*command, "--rounds", "1", "--prompts", "1"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = {words[0]: words for words in map(str.split, done.stdout.splitlines()) if words[-2:] == ["off", "plain"]}
    for subject in ("TRL", "elocution"):
        assert float(rows[subject][-3]) < 1e-4, done.stdout  # "gradient 5e-07 off plain"
