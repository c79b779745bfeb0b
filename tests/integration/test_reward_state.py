"""Rewards that depend on the steps before, through the whole loop: what they carry is saved, and a resumed run goes on with it."""

import json
import shutil
from pathlib import Path
from typing import Any

from safetensors.torch import load_file

from elocution.config.load import load_config
from elocution.testing.run_directory import read_rows
from elocution.train.loop import train

SMALL = [
    *("train.prompts_per_step=2", "rollout.group_size=3", "train.steps=6", "train.save_every=3", "reward.workers=1"),
    *("eval.sentences=1", "eval.probe_sentences=0", "algorithm.max_resamples=1"),
]
COMPOSITE = [
    "reward.type=composite",
    'reward.components={words={fact="wer", utility="tanh", scale=3.0}, sound={fact="nll", utility="exp", scale=3.0}}',
    'reward.constraints={pitch={fact="f0_spread", share=0.9}}',
    "reward.price_rate=1.0",
    'reward.on_missing="renormalize"',
]
PUBLISHED = ["reward.combine=z_score", "reward.gate_beta=10.0"]
AHEAD = ["train.max_lag=1", "algorithm.correction=token_truncate"]


def _untimed(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if not key.startswith(("time/", "idle/", "memory/"))}


def test_s76_s77_baselines_and_prices_of_six_steps_equal_three_and_three_resumed_to_the_bit(tmp_path: Path) -> None:
    """Completions are scored a step ahead of the learner, so that scores must not take in what the state happens to be."""
    config = load_config(None, [*SMALL, *COMPOSITE, *PUBLISHED, *AHEAD])
    whole, halves = tmp_path / "whole", tmp_path / "halves"
    train(config, whole)
    shutil.copytree(whole, halves, symlinks=True)
    shutil.rmtree(halves / "checkpoints" / "step_6")
    assert json.loads((halves / "checkpoints" / "step_3" / "reward.json").read_text())["bases"]["pitch"] > 0
    train(config, halves, resume=True)
    rows = read_rows(whole / "metrics.jsonl")
    assert list(map(_untimed, read_rows(halves / "metrics.jsonl"))) == list(map(_untimed, rows))
    final = [path / "checkpoints" / "step_6" for path in (whole, halves)]
    one, other = ((path / "reward.json").read_text() for path in final)
    assert one == other
    first, second = (load_file(path / "model" / "model.safetensors") for path in final)
    assert all((first[name] == second[name]).all() for name in first)
    # What is carried moves: else a resume that forgets it would pass.
    assert len({row["baseline/words_mean"] for row in rows}) == 6
    assert all("constraint/pitch_price" in row for row in rows)
