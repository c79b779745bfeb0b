import math

import pytest
import torch

from elocution.grpo.advantages import group_advantages


def test_two_groups_worked_by_hand() -> None:
    # Group 1: 0, 1 -> mean 1/2, unbiased std sqrt(1/2) -> -/+ 1/sqrt(2).
    # Group 2: 1, 2, 3 would be mean 2, std 1; the fourth sibling keeps both groups at G = 3.
    rewards = torch.tensor([[0.0, 1.0, 0.5], [1.0, 2.0, 3.0]], dtype=torch.float64)
    result = group_advantages(rewards, torch.ones(2, 3, dtype=torch.bool), std_floor=1e-6)
    assert torch.allclose(result.advantages, torch.tensor([[-1.0, 1.0, 0.0], [-1.0, 0.0, 1.0]], dtype=torch.float64))
    assert result.has_signal.tolist() == [True, True]


def test_s02_unscored_siblings_change_nothing_even_if_nan() -> None:
    rewards = torch.tensor([[0.0, 1.0, math.nan]], dtype=torch.float64)
    scored = torch.tensor([[True, True, False]])
    result = group_advantages(rewards, scored, std_floor=1e-6)
    half = 1 / math.sqrt(2)
    assert torch.allclose(result.advantages, torch.tensor([[-half, half, 0.0]], dtype=torch.float64))


@pytest.mark.parametrize("scored", [[True, False, False], [False, False, False]])
def test_fewer_than_two_scored_siblings_carry_no_signal(scored: list[bool]) -> None:
    result = group_advantages(torch.tensor([[0.3, 0.9, 0.1]]), torch.tensor([scored]), std_floor=0.01)
    assert result.has_signal.tolist() == [False]
    assert result.advantages.abs().max() == 0


def test_s56_rewards_that_differ_only_across_groups_carry_no_signal() -> None:
    rewards = torch.tensor([[0.2, 0.2], [0.9, 0.9]])
    result = group_advantages(rewards, torch.ones(2, 2, dtype=torch.bool), std_floor=0.01)
    assert result.has_signal.tolist() == [False, False]


def test_s59_a_nearly_constant_group_is_not_blown_up() -> None:
    rewards = torch.tensor([[0.9, 0.90001]], dtype=torch.float64)
    result = group_advantages(rewards, torch.ones(1, 2, dtype=torch.bool), std_floor=0.01)
    # Without the floor both would be 0.707 in size; with it they are 5e-6 / 0.01.
    assert result.advantages.abs().max().item() == pytest.approx(5e-4)


def test_permuting_siblings_permutes_advantages() -> None:
    rewards = torch.rand(3, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    scored = torch.ones(3, 6, dtype=torch.bool)
    order = torch.tensor([3, 1, 5, 0, 2, 4])
    plain = group_advantages(rewards, scored, std_floor=0.01).advantages
    permuted = group_advantages(rewards[:, order], scored, std_floor=0.01).advantages
    assert torch.allclose(permuted, plain[:, order])
    assert torch.allclose(plain.sum(dim=1), torch.zeros(3, dtype=torch.float64), atol=1e-12)


def test_a_scored_nan_is_refused() -> None:
    with pytest.raises(ValueError, match="not finite"):
        group_advantages(torch.tensor([[math.nan, 1.0]]), torch.ones(1, 2, dtype=torch.bool), std_floor=0.01)
