"""Runs in bf16 with recomputed activations: engine and learner still agree, and weights are kept in fp32."""

from pathlib import Path

import torch
from safetensors.torch import load_file

from elocution.config.load import load_config
from elocution.testing.run_directory import read_rows
from elocution.train.loop import train


def test_s64_a_run_in_bf16_samples_from_what_it_learns(tmp_path: Path) -> None:
    settings = [
        *("model.precision='bf16'", "train.activation_checkpointing=true", "train.steps=2"),
        *("train.prompts_per_step=2", "rollout.group_size=3", "eval.sentences=2", "eval.probe_sentences=0"),
    ]
    train(load_config(None, settings), tmp_path / "run")
    rows = read_rows(tmp_path / "run" / "metrics.jsonl")
    assert all(row["ratio/max_deviation"] < 0.5 for row in rows)
    assert any(row["ratio/max_deviation"] > 1e-4 for row in rows)  # bf16 it was
    weights = load_file(tmp_path / "run" / "best" / "model" / "model.safetensors")
    assert {weight.dtype for weight in weights.values()} == {torch.float32}
