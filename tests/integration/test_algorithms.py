"""Every published variant runs through the whole loop, and engine and learner agree in each."""

from pathlib import Path

import pytest

from elocution.config.load import load_config
from elocution.testing.run_directory import read_rows
from elocution.train.loop import train

SMALL = [
    *("train.prompts_per_step=3", "rollout.group_size=4", "train.steps=2", "eval.sentences=1"),
    *("eval.probe_sentences=0", "train.save_every=10"),
]


_VARIANTS = {
    "gdpo-gspo": ["algorithm.advantage='gdpo'", "algorithm.part_weights={wer=1, nll=1}", "algorithm.loss='gspo'",
         "algorithm.aggregation='sequence'", "algorithm.truncated='mask'"],
    "gdpo-composite": ["algorithm.advantage='gdpo'", "algorithm.part_weights={words=3, sound=1}", "reward.type='composite'",
         "reward.components={words={fact='wer', utility='tanh'}, sound={fact='nll', utility='exp', scale=3.0}}"],
    "rloo-cispo": ["algorithm.advantage='rloo'", "algorithm.loss='cispo'", "algorithm.aggregation='fixed'",
         "algorithm.fixed_length=100", "algorithm.entropy_coef=0.01", "algorithm.correction='token_truncate'",
         "train.minibatches=2", "algorithm.epochs=2"],
    "reinforce_pp-sapo": ["algorithm.advantage='reinforce_pp'", "algorithm.loss='sapo'", "algorithm.kl_coef=0.1",
         "algorithm.kl_estimate='k2'", "rollout.temperature_schedule='linear'", "rollout.temperature_end=0.8"],
    "dr_grpo-weighted_ce": ["algorithm.advantage='dr_grpo'", "algorithm.loss='weighted_ce'", "algorithm.whole_stops=true",
         "algorithm.truncated='keep'", "algorithm.channel_weights='1'"],
    "grpo-clipped": ["algorithm.dual_clip=3", "algorithm.schedule='cosine'", "algorithm.clip_high_end=0.2"],
}  # fmt: skip
_QUICK = ("gdpo-composite", "rloo-cispo")


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(settings, id=name, marks=() if name in _QUICK else pytest.mark.slow)
        for name, settings in _VARIANTS.items()
    ],
)
def test_a_variant_trains(settings: list[str], tmp_path: Path) -> None:
    train(load_config(None, [*SMALL, *settings]), tmp_path / "run")
    rows = read_rows(tmp_path / "run" / "metrics.jsonl")
    assert len(rows) == 2
    for row in rows:
        assert row["updates/skipped"] == 0
        assert row["ratio/max_deviation"] < 1e-3
        assert row["grad/norm"] > 0


@pytest.mark.parametrize("rank", [pytest.param(0, marks=pytest.mark.slow), 4])
def test_the_exact_kl_trains_with_and_without_an_adapter(rank: int, tmp_path: Path) -> None:
    settings = ["algorithm.kl_coef=0.1", "algorithm.kl_estimate='exact'", f"model.lora.rank={rank}"]
    rules = ["train.rules=[]"] if rank else []
    train(load_config(None, [*SMALL, *settings, *rules, "train.learning_rate=1e-3"]), tmp_path / "run")
    first, second = read_rows(tmp_path / "run" / "metrics.jsonl")
    assert first["updates/skipped"] == second["updates/skipped"] == 0
    # The first update starts from the base model itself.
    assert abs(first["kl/exact"]) < 1e-7
    assert second["kl/exact"] > 1e-7
    assert second["kl/k3"] > 1e-7
