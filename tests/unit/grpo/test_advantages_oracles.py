"""Against TRL, run here, and against veRL, run by scripts/write_verl_oracle.py in an environment of its own.

Rewards are large, so that the epsilons of both (up to 1e-4) vanish beside the deviations, as the floor does here.
Where TRL or veRL means something else, the test states by which factor.
"""

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from elocution.grpo.advantages import (
    ADVANTAGES,
    dr_grpo_advantages,
    gdpo_advantages,
    group_advantages,
    reinforce_pp_advantages,
    rloo_advantages,
)

FLOOR = 0.01
VERL = json.loads((Path(__file__).parents[2] / "data" / "oracles" / "verl_advantages.json").read_text(encoding="utf-8"))
TrlAdvantages = Callable[..., Tensor]


def everything_scored(rewards: Tensor) -> Tensor:
    return torch.ones(rewards.shape[:2], dtype=torch.bool)


def drawn(*shape: int, seed: int) -> Tensor:
    """Multiples of 2¹⁴, exact in the float32 to which TRL rounds rewards."""
    return 2.0**14 * torch.randint(1, 1000, shape, generator=torch.Generator().manual_seed(seed)).double()


def assert_equal(ours: Tensor, theirs: Tensor, *, unit: float = 1.0) -> None:
    assert ours.dtype == torch.float64
    assert float((ours - theirs).abs().max()) <= 1e-6 * unit
    assert float(theirs.abs().max()) > 0.5 * unit


@pytest.fixture
def trl_advantages(tmp_path: Path) -> Iterator[TrlAdvantages]:
    """`(rewards [P, G, R] with NaN where unscored, weights [R], rloo=False, **config)` -> TRL's own advantages [P, G].

    The trainer generates a token per completion with a random Llama; its reward functions return the given rewards.
    TRL allocates rewards in torch's default type, so with float64 there it computes in float64.
    """
    trl = pytest.importorskip("trl", reason="needs trl, whose advantages are compared")
    datasets = pytest.importorskip("datasets", reason="needs datasets, as trl does")
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    words = Tokenizer(WordLevel({"<pad>": 0, "<eos>": 1, "a": 2}, unk_token="a"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>", unk_token="a")
    sizes = {"vocab_size": 8, "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1}
    special = {"pad_token_id": 0, "eos_token_id": 1, "bos_token_id": None}

    def scripted(column: Tensor) -> Callable[..., list[float | None]]:
        values = [None if math.isnan(value) else value for value in column.flatten().tolist()]

        def reward(**_: Any) -> list[float | None]:
            return values

        return reward

    def run(rewards: Tensor, weights: list[float], *, rloo: bool = False, **config: Any) -> Tensor:
        groups, siblings, _ = rewards.shape
        config_class, trainer_class = (trl.RLOOConfig, trl.RLOOTrainer) if rloo else (trl.GRPOConfig, trl.GRPOTrainer)
        trainer = trainer_class(
            model=LlamaForCausalLM(LlamaConfig(**sizes, **special, num_attention_heads=1)),
            args=config_class(
                output_dir=str(tmp_path),
                per_device_train_batch_size=groups * siblings,
                num_generations=siblings,
                max_completion_length=1,
                reward_weights=weights,
                report_to=[],
                use_cpu=True,
                bf16=False,
                beta=0.0,
                **config,
            ),
            processing_class=tokenizer,
            reward_funcs=[scripted(column) for column in rewards.unbind(dim=2)],
            train_dataset=datasets.Dataset.from_list([{"prompt": "a"}]),
        )
        torch.set_default_dtype(torch.float64)
        result = trainer._generate_and_score_completions([{"prompt": "a"}] * (groups * siblings))["advantages"]
        assert result.dtype == torch.float64
        return result.reshape(groups, siblings)

    before = torch.get_default_dtype()
    yield run
    torch.set_default_dtype(before)


# TRL uses names that transformers deprecates.
trl_test = pytest.mark.filterwarnings("ignore:.*gradient_checkpointing. is deprecated:FutureWarning")


def with_unscored() -> tuple[Tensor, Tensor]:
    """Five groups of five: all scored, two unscored, equal rewards, one scored, none scored."""
    rewards = drawn(5, 5, seed=1)
    rewards[1, [0, 3]] = torch.nan
    rewards[2] = rewards[2, 0]
    rewards[3, 1:] = torch.nan
    rewards[4] = torch.nan
    return rewards, ~rewards.isnan()


@trl_test
def test_trl_scaled_by_group_is_grpo(trl_advantages: TrlAdvantages) -> None:
    rewards, scored = with_unscored()
    theirs = trl_advantages(rewards[..., None], [1.0], scale_rewards="group")
    assert_equal(group_advantages(rewards, scored, std_floor=FLOOR).advantages, theirs)


@trl_test
def test_trl_unscaled_is_dr_grpo(trl_advantages: TrlAdvantages) -> None:
    rewards, scored = with_unscored()
    theirs = trl_advantages(rewards[..., None], [1.0], scale_rewards="none")
    assert_equal(dr_grpo_advantages(rewards, scored, std_floor=FLOOR).advantages, theirs, unit=1e6)


@trl_test
def test_trl_rloo_is_rloo(trl_advantages: TrlAdvantages) -> None:
    rewards, scored = with_unscored()
    theirs = trl_advantages(rewards[..., None], [1.0], rloo=True)
    assert_equal(rloo_advantages(rewards, scored, std_floor=FLOOR).advantages, theirs, unit=1e6)


@trl_test
def test_trl_scaled_by_batch_divides_by_the_spread_of_rewards_and_not_of_their_differences_to_the_mean(
    trl_advantages: TrlAdvantages,
) -> None:
    rewards = drawn(4, 5, seed=2) + 2.0**22 * torch.arange(4).double()[:, None]
    ours = reinforce_pp_advantages(rewards, everything_scored(rewards), std_floor=FLOOR).advantages
    theirs = trl_advantages(rewards[..., None], [1.0], scale_rewards="batch")
    centred = rewards - rewards.mean(dim=1, keepdim=True)
    assert_equal(ours * centred.std() / rewards.std(), theirs)
    assert float((ours - theirs).abs().max()) > 0.1


@trl_test
def test_trl_scaled_by_batch_is_reinforce_pp_where_all_groups_have_the_same_mean(trl_advantages: TrlAdvantages) -> None:
    rewards = drawn(4, 5, seed=3)
    rewards[:, 4] = 2.0**26 - rewards[:, :4].sum(dim=1)
    ours = reinforce_pp_advantages(rewards, everything_scored(rewards), std_floor=FLOOR).advantages
    assert_equal(ours, trl_advantages(rewards[..., None], [1.0], scale_rewards="batch"))


@trl_test
def test_trl_normalize_then_sum_is_gdpo(trl_advantages: TrlAdvantages) -> None:
    rewards = drawn(4, 5, 3, seed=4) * torch.tensor([1.0, 64.0, 0.25], dtype=torch.float64)
    rewards[1, :2] = torch.nan  # unscored by all
    rewards[2, :, 1] = rewards[2, 0, 1]  # one reward without spread
    scored = ~rewards[..., 0].isnan()
    weights = [2.0**20, 2.0**19, -(2.0**21)]  # large as the rewards are, since TRL adds epsilon to the sum's spread too
    ours = gdpo_advantages(rewards, scored, torch.tensor(weights), std_floor=FLOOR).advantages
    assert_equal(ours, trl_advantages(rewards, weights, multi_objective_aggregation="normalize_then_sum"))


@trl_test
def test_trl_normalize_then_sum_counts_groups_without_signal_in_the_spread(trl_advantages: TrlAdvantages) -> None:
    rewards = drawn(4, 5, 2, seed=5)
    rewards[1] = rewards[1, :1]  # 5 of equal rewards
    rewards[2, 1:] = torch.nan  # 1 scored alone: 16 of 16 in TRL's spread, 10 in ours
    weights = [2.0**20, 2.0**20]
    scored = ~rewards[..., 0].isnan()
    ours = gdpo_advantages(rewards, scored, torch.tensor(weights), std_floor=FLOOR).advantages
    theirs = trl_advantages(rewards, weights, multi_objective_aggregation="normalize_then_sum")
    assert_equal(ours * math.sqrt((16 - 1) / (10 - 1)), theirs)


def verl_case(case: str, estimator: str) -> tuple[Tensor, Tensor, Tensor]:
    """-> rewards, our advantages, veRL's, all [P, G]."""
    rewards = torch.tensor(VERL["single"][case]["rewards"], dtype=torch.float64)
    scored = everything_scored(rewards)
    if estimator == "gdpo":
        ours = gdpo_advantages(rewards[..., None], scored, torch.ones(1), std_floor=FLOOR)
    else:
        ours = ADVANTAGES[estimator](rewards, scored, std_floor=FLOOR)
    theirs = torch.tensor(VERL["single"][case]["advantages"][estimator], dtype=torch.float64)
    return rewards, ours.advantages, theirs


@pytest.mark.parametrize("case", ["even", "pairs", "wide"])
@pytest.mark.parametrize("estimator", [*ADVANTAGES, "gdpo"])
def test_verl_agrees_on_groups_with_signal(case: str, estimator: str) -> None:
    _, ours, theirs = verl_case(case, estimator)
    assert_equal(ours, theirs)


@pytest.mark.parametrize("case", ["flat_group", "lengths"])
@pytest.mark.parametrize("estimator", ["grpo", "dr_grpo", "rloo"])
def test_verl_agrees_whatever_the_lengths_and_other_groups_where_nothing_is_taken_over_the_batch(
    case: str, estimator: str
) -> None:
    _, ours, theirs = verl_case(case, estimator)
    assert_equal(ours, theirs)


@pytest.mark.parametrize("case", ["even", "flat_component"])
def test_verl_agrees_on_gdpo_of_three_rewards(case: str) -> None:
    content = VERL["several"][case]
    rewards, weights = (torch.tensor(content[key], dtype=torch.float64) for key in ("rewards", "weights"))
    ours = gdpo_advantages(rewards, everything_scored(rewards), weights, std_floor=FLOOR).advantages
    assert_equal(ours, torch.tensor(content["advantages"], dtype=torch.float64))


@pytest.mark.parametrize("estimator", ["reinforce_pp", "gdpo"])
def test_verl_counts_groups_without_signal_in_the_spread(estimator: str) -> None:
    _, ours, theirs = verl_case("flat_group", estimator)
    assert_equal(ours * math.sqrt((20 - 1) / (15 - 1)), theirs)


@pytest.mark.parametrize("estimator", ["reinforce_pp", "gdpo"])
def test_verl_normalises_over_tokens_so_that_long_completions_count_more(estimator: str) -> None:
    _, ours, theirs = verl_case("lengths", estimator)
    lengths = torch.tensor(VERL["single"]["lengths"]["lengths"])
    over_tokens = ours.flatten().repeat_interleave(lengths.flatten())
    assert_equal((ours - over_tokens.mean()) / over_tokens.std(), theirs)
    assert float((ours - theirs).abs().max()) > 0.05


@pytest.mark.parametrize("estimator", ["grpo", "dr_grpo", "rloo"])
def test_verl_trains_on_the_bare_reward_of_a_completion_without_siblings(estimator: str) -> None:
    rewards, ours, theirs = verl_case("lone", estimator)
    assert torch.allclose(theirs, rewards, rtol=1e-5)
    assert not ours.any()
