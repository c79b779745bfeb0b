"""Rewards that depend on the steps before, through the whole loop: what they carry is saved, and a resumed run goes on with it."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
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
    'reward.constraints={pitch={fact="f0_spread", share=0.9}, pace={fact="rate", share=1.2, scale=4.0}}',
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
    check_prices(rows, rate=config.reward.price_rate, largest=config.reward.max_price)


def check_prices(rows: list[dict[str, Any]], *, rate: float, largest: float) -> None:
    """Each price follows its step's violation. Step 1, the base's own, is not a fifth faster than the base, and has its price."""
    for name in ("pitch", "pace"):
        before = 0.0
        for row in rows:
            moved = before + rate * row[f"constraint/{name}_violation"]
            before = row[f"constraint/{name}_price"]
            assert before == pytest.approx(min(largest, max(0.0, moved)))
    base = rows[0]["constraint/pace_mean"]
    assert [row["constraint/pace_violation"] for row in rows] == pytest.approx(
        [(1.2 * base - row["constraint/pace_mean"]) / 4.0 for row in rows]
    )
    prices = [row["constraint/pace_price"] for row in rows]
    assert prices[0] == pytest.approx(rate * 0.2 * base / 4.0)
    assert len(set(prices)) > 2


@pytest.mark.slow
def test_a_constraint_keeps_the_length_that_the_reward_alone_gives_up(tmp_path: Path) -> None:
    """A reward for short speech shortens it by a third in eight steps; held to a tenth above the base's length it grows."""
    settings = [
        *("train.prompts_per_step=3", "rollout.group_size=8", "train.steps=8", "train.save_every=100"),
        *("train.learning_rate=2e-3", "train.warmup_steps=0", "algorithm.max_resamples=0", "reward.workers=1"),
        *("eval.sentences=1", "eval.probe_sentences=0", "reward.type=composite"),
        'reward.components={short={fact="duration_s", utility="exp"}}',
    ]
    held_to = ['reward.constraints={length={fact="duration_s", share=1.1, scale=0.05}}', "reward.price_rate=1.0"]
    train(load_config(None, settings), tmp_path / "free")
    train(load_config(None, [*settings, *held_to]), tmp_path / "held")
    free, held = (read_rows(tmp_path / name / "metrics.jsonl") for name in ("free", "held"))
    base = free[0]["length/mean_codes"]
    assert held[0]["length/mean_codes"] == base
    assert free[-1]["length/mean_codes"] < 0.7 * base
    assert min(row["length/mean_codes"] for row in held[-3:]) > 1.1 * base
    prices = [row["constraint/length_price"] for row in held]
    assert prices[0] > 0
    assert prices[-1] < max(prices)
