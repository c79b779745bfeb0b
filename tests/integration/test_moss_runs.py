"""Whole runs of a MOSS checkpoint with random weights: an adapter, overlap, voices, emotions; interrupted and resumed."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from elocution.codecs.mel import MelSettings
from elocution.codecs.tiny_residual import TinyResidualCodec
from elocution.config.load import load_config
from elocution.config.tree import RunConfig
from elocution.policies import load_policy
from elocution.testing.policies import small_moss
from elocution.testing.run_directory import read_rows
from elocution.train.loop import train

STEPS = 4


class Interrupted(Exception):
    pass


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> RunConfig:
    folder = tmp_path_factory.mktemp("moss")
    small_moss().save_pretrained(str(folder / "moss"))
    books = 0.5 * torch.randn(4, 16, 640, generator=torch.Generator().manual_seed(0))
    books[0] -= 4.0
    TinyResidualCodec(books, MelSettings(frames_per_code=8)).save_pretrained(folder / "codec")
    texts = [f"{a} {b} {c}" for a in ("one", "mary", "the") for b in ("three", "painted") for c in ("house", "one")]
    for name, part in (("train", texts[:9]), ("held_out", texts[9:])):
        rows = [
            {
                "text": text,
                "emotion": "three",
                "prompt_text": "one",
                "prompt_codes": np.random.default_rng(number).integers(0, 16, (4, 4)).tolist(),
            }
            for number, text in enumerate(part)
        ]
        (folder / f"{name}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return load_config(
        None,
        [
            *("model.family='moss'", f"model.path='{folder}/moss'", "model.lora={rank = 8, alpha = 16.0}"),
            *("codec.type='tiny-residual'", f"codec.path='{folder}/codec'"),
            *(f"data.train='{folder}/train.jsonl'", f"data.held_out='{folder}/held_out.jsonl'"),
            *("rollout.group_size=4", "rollout.min_codes=20", "rollout.max_codes_per_char=1.0"),
            *("algorithm.channel_weights='1,32'", "algorithm.kl_coef=0.01", "algorithm.correction='token_truncate'"),
            *("train.max_lag=1", "train.rules=[]", "train.learning_rate=1e-3", "train.save_every=1"),
            *(f"train.steps={STEPS}", "train.prompts_per_step=2", "reward.type='dying_parts:DyingReward'"),
            *("eval.sentences=2", "eval.probe_sentences=0", "eval.judge='dying_parts:Mute'"),
        ],
    )


def untimed(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if not key.startswith(("time/", "idle/", "memory/"))}


@pytest.fixture(scope="module")
def whole(config: RunConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "whole"
    train(config, run)
    return run


def test_s62_a_run_moves_the_adapter_and_draws_with_it(whole: Path, config: RunConfig) -> None:
    rows = read_rows(whole / "metrics.jsonl")
    assert [row["step"] for row in rows] == [1, 2, 3, 4]
    learnt = [row for row in rows if row["grad/norm"] is not None]
    assert learnt
    assert all(row["grad/norm"] > 0 for row in learnt)
    # The first step's weights are those that drew it; later ones are a step old, and count by importance.
    assert rows[0]["engine/mismatch_max_nats"] is None or rows[0]["engine/mismatch_max_nats"] < 1e-4
    assert rows[0]["lag/max_versions"] == 0
    weights = load_file(whole / "checkpoints" / "step_4" / "model" / "adapter_model.safetensors")
    assert any(tensor.any() for name, tensor in weights.items() if ".lora_B." in name)
    policy = load_policy("moss", whole / "checkpoints" / "step_4" / "model")
    assert policy.num_channels == 5


@pytest.mark.slow
def test_s76_an_interrupted_run_goes_on_as_if_it_had_not_been(whole: Path, config: RunConfig, tmp_path: Path) -> None:
    def interrupt(stage: str, done: int, total: int, metrics: dict[str, Any]) -> None:
        if stage == "train" and done == 2:
            raise Interrupted

    with pytest.raises(Interrupted):
        train(config, tmp_path / "run", progress=interrupt)
    train(config, tmp_path / "run", resume=True)
    own, other = ([untimed(row) for row in read_rows(run / "metrics.jsonl")] for run in (tmp_path / "run", whole))
    assert own == other
    last = ("checkpoints", "step_4", "model", "adapter_model.safetensors")
    ours, theirs = (load_file(run.joinpath(*last)) for run in (tmp_path / "run", whole))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_emotions_and_voices_reach_the_records(whole: Path) -> None:
    kept = read_rows(whole / "rollouts.jsonl")
    assert kept
    assert {row["outcome"] for row in kept} <= {"speech", "empty", "silent", "runaway"}
