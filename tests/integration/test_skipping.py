"""Updates that are not finite: skipped, kept for replay, and too many of them stop the run."""

from pathlib import Path

import pytest

from elocution.config.load import load_config
from elocution.errors import NonFiniteError
from elocution.testing.run_directory import read_rows
from elocution.train.loop import train
from elocution.train.replay import read_batches


def test_s52_an_update_that_is_not_finite_is_kept_and_too_many_stop_the_run(tmp_path: Path) -> None:
    run = tmp_path / "run"
    settings = [
        *("model.family='dying_parts:NanPolicy'", "train.max_skipped_updates=1", "train.steps=3", "train.save_every=1"),
        *("train.prompts_per_step=2", "rollout.group_size=3", "eval.sentences=1", "eval.probe_sentences=0"),
    ]
    with pytest.raises(NonFiniteError, match=r"the loss is nan.*2\. update.*max_skipped_updates = 1"):
        train(load_config(None, settings), run)
    (row,) = read_rows(run / "metrics.jsonl")
    assert row["updates/skipped"] == 1
    assert row["policy_version"] == 0
    assert row["loss/policy"] is None
    before, after = (
        (run / "checkpoints" / f"step_{step}" / "model" / "model.safetensors").read_bytes() for step in (0, 1)
    )
    assert before == after
    kept = sorted((run / "skipped").iterdir())
    assert [path.name for path in kept] == ["step_0001_1.pt", "step_0002_2.pt"]
    assert all(batch.num_tokens > 0 for path in kept for batch in read_batches(path))
