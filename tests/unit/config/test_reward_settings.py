"""The reward's section: combinations that fit together, and those that do not."""

from pathlib import Path

import pytest

import elocution
from elocution.config.load import load_config
from elocution.errors import ConfigError

PRESETS = Path(elocution.__file__).parent / "configs" / "moss"
PARTS = (
    "reward.type=composite",
    'reward.components={words={fact="wer", utility="tanh"}, sound={fact="nll", utility="exp"}}',
)
GDPO = ("algorithm.advantage=gdpo", "algorithm.part_weights={words=0.6, sound=0.4}")


@pytest.mark.parametrize(
    ("name", "weights"),
    [
        ("reward-v1.toml", {"speaker": 0.6, "emotion": 0.4}),
        ("reward-v7.toml", {"speaker": 0.5, "emotion": 0.4, "quality": 0.1}),
    ],
)
def test_the_published_moss_weights_load_with_a_gate_that_keeps_its_sign(name: str, weights: dict[str, float]) -> None:
    reward = load_config(PRESETS / name).reward
    assert {part: component.weight for part, component in reward.components.items()} == weights
    assert (reward.type, reward.combine, reward.gate_beta) == ("composite", "sum", 10.0)
    # A cosine of -1 is worth 0, so that no score is negative.
    assert {(one.utility, one.low, one.high) for one in reward.components.values()} == {("linear", -1.0, 1.0)}
    assert load_config(PRESETS / name, ["reward.combine=z_score"]).reward.combine == "z_score"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["reward.gate_beta=10.0"], r'"wer_nll" has a combination of its own and takes no reward\.gate_beta'),
        (["reward.combine=z_score"], "takes no reward.combine"),
        (['reward.devices=["cuda:0", "cuda:1"]', "reward.workers=1"], "leaves some of reward.devices"),
        (['reward.constraints={a={fact="rate"}}'], r"takes no reward\.constraints"),
        ([PARTS[1]], r"takes no reward\.components"),
        (["reward.type=composite", "reward.combine=z_score"], "needs the weights of"),
        ([*GDPO], r"has weights for sound, words, but the parts of the reward 'wer_nll' are nll, wer"),
        ([*PARTS, GDPO[0], "algorithm.part_weights={words=1}"], "weights for words, but the parts .* are sound, words"),
        ([*PARTS, *GDPO, "reward.gate_beta=10.0"], r"would ignore reward\.gate_beta"),
        ([*PARTS, *GDPO, "reward.combine=z_score"], r"would ignore reward\.combine"),
        ([*PARTS, *GDPO, 'reward.constraints={a={fact="rate"}}'], r"would ignore reward\.constraints"),
        ([*PARTS, *GDPO, "reward.on_missing=renormalize"], "needs every part of every score"),
    ],
)
def test_weights_that_do_not_match_the_reward_are_config_errors(settings: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_config(None, settings)


def test_gdpo_takes_its_columns_from_the_parts_of_a_composite() -> None:
    assert set(load_config(None, [*PARTS, *GDPO]).reward.part_names or ()) == {"words", "sound"}


@pytest.mark.parametrize(
    ("settings", "workers"),
    [
        ([], 0),
        (['reward.devices=["cuda:0", "cuda:1"]'], 2),
        (['reward.devices=["cuda:0", "cuda:1"]', "reward.workers=6"], 6),
    ],
)
def test_without_a_number_each_gpu_has_one_scoring_process_and_each_core_of_the_cpu(
    settings: list[str], workers: int
) -> None:
    assert load_config(None, [*settings]).reward.num_workers == workers  # 0 is one for each core
