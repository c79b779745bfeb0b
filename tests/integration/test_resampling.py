"""Groups without spread make room for other prompts, within a bound."""

import sys
from pathlib import Path

import pytest

from elocution.config.load import load_config
from elocution.testing.run_directory import read_rows
from elocution.train.loop import train

REWARD = """
from elocution.types import Score

class EvenPromptsTie:
    def __init__(self, config): pass
    def __enter__(self): return self
    def __exit__(self, *_): pass
    def __call__(self, rollouts):
        return [Score(0.5 if int(r.utterance.id.rpartition("-")[2]) % 2 == 0 else len(r.codes) / 100) for r in rollouts]
"""


@pytest.mark.parametrize("bound", [2, pytest.param(0, marks=pytest.mark.slow)])
def test_s56_groups_without_spread_are_replaced_within_the_bound(
    bound: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tying_reward.py").write_text(REWARD)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    settings = [
        *("reward.type='tying_reward:EvenPromptsTie'", f"algorithm.max_resamples={bound}", "train.steps=2"),
        *("train.prompts_per_step=6", "rollout.group_size=3", "eval.sentences=1", "eval.probe_sentences=0"),
    ]
    train(load_config(None, settings), tmp_path / "run")
    rows = read_rows(tmp_path / "run" / "metrics.jsonl")
    for row in rows:
        groups = 6 + row["groups/resampled"]
        useful = groups * (1 - row["groups/no_spread_share"])
        assert useful <= 6 + 1e-9
        assert useful > 0
        if bound == 0:
            assert row["groups/resampled"] == 0
    if bound:
        assert sum(row["groups/resampled"] for row in rows) > 0
