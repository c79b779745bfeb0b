import math
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from elocution.grpo.advantages import GroupAdvantages, group_advantages

FLOOR = 0.01
# Multiples of 1/64 are exact in binary, so that equal rewards are equal and a spread is 0 or at least 1/64.
GROUPS = st.lists(st.tuples(st.integers(0, 64), st.booleans()), min_size=1, max_size=9)


def advantages_of(rewards: Sequence[Sequence[float]], scored: Tensor | None = None) -> GroupAdvantages:
    values = torch.tensor(rewards, dtype=torch.float64)
    return group_advantages(
        values, torch.ones_like(values, dtype=torch.bool) if scored is None else scored, std_floor=FLOOR
    )


def by_loop(rewards: Sequence[float], scored: Sequence[bool]) -> list[float]:
    """The formula written out for one group, one sibling after another."""
    known = [reward for reward, is_scored in zip(rewards, scored, strict=True) if is_scored]
    if len(known) < 2 or max(known) - min(known) <= 1e-6:
        return [0.0] * len(rewards)
    mean = sum(known) / len(known)
    std = math.sqrt(sum((reward - mean) ** 2 for reward in known) / (len(known) - 1))
    return [(r - mean) / max(std, FLOOR) if s else 0.0 for r, s in zip(rewards, scored, strict=True)]


def test_two_groups_worked_by_hand() -> None:
    # 0, 1, 1/2: mean 1/2, unbiased variance (1/4 + 1/4 + 0) / 2 = 1/4, std 1/2 -> -1, 1, 0.
    # 1, 2, 6: mean 3, unbiased variance (4 + 1 + 9) / 2 = 7 -> -2, -1, 3 over sqrt(7).
    result = advantages_of([[0.0, 1.0, 0.5], [1.0, 2.0, 6.0]])
    root = math.sqrt(7)
    expected = torch.tensor([[-1.0, 1.0, 0.0], [-2 / root, -1 / root, 3 / root]], dtype=torch.float64)
    assert torch.allclose(result.advantages, expected)
    assert torch.allclose(result.std, torch.tensor([0.5, root], dtype=torch.float64))
    assert result.has_signal.tolist() == [True, True]
    assert result.in_loss.all()


@pytest.mark.parametrize("unscored", [math.nan, math.inf, -math.inf, 1e300, 0.0])
def test_s02_an_unscored_sibling_changes_nothing_whatever_it_holds(unscored: float) -> None:
    # 0 and 1: mean 1/2, unbiased variance 1/2 -> -/+ 1 / sqrt(2). A made-up 0 for the third would give mean 1/3.
    result = advantages_of([[0.0, 1.0, unscored]], torch.tensor([[True, True, False]]))
    half = 1 / math.sqrt(2)
    assert torch.allclose(result.advantages, torch.tensor([[-half, half, 0.0]], dtype=torch.float64))
    assert result.in_loss.tolist() == [[True, True, False]]


@pytest.mark.parametrize("scored", [[True, False, False], [False, False, False]])
def test_s02_fewer_than_two_scored_siblings_carry_no_signal(scored: list[bool]) -> None:
    result = advantages_of([[0.3, 0.9, math.nan]], torch.tensor([scored]))
    assert result.has_signal.tolist() == [False]
    assert result.advantages.tolist() == [[0.0, 0.0, 0.0]]
    assert not result.in_loss.any()
    assert result.std.tolist() == [0.0]


def test_s56_rewards_that_differ_only_across_groups_carry_no_signal() -> None:
    # Over the batch the deviation is 0.4; inside each group it is 0, and that is what is reported.
    result = advantages_of([[0.2, 0.2], [0.9, 0.9], [0.2, 0.9]])
    assert result.has_signal.tolist() == [False, False, True]
    assert result.in_loss.tolist() == [[False, False], [False, False], [True, True]]
    assert result.std.tolist() == pytest.approx([0.0, 0.0, 0.7 / math.sqrt(2)])


def test_s59_a_nearly_constant_group_is_not_blown_up() -> None:
    # Without the floor both would be 0.707 in size; with it they are 5e-6 / 0.01.
    assert advantages_of([[0.9, 0.90001]]).advantages.tolist()[0] == pytest.approx([-5e-4, 5e-4])
    # What rounding alone can make is no signal at all.
    assert advantages_of([[0.9, 0.9 + 1e-7]]).has_signal.tolist() == [False]


def test_s60_two_siblings_get_opposite_advantages_whatever_their_distance() -> None:
    # With G = 2 only the sign of the difference is left, which is why small groups swing: always -/+ 1 / sqrt(2).
    half = 1 / math.sqrt(2)
    for lower, higher in ((0.1, 0.2), (0.1, 0.9)):
        result = advantages_of([[lower, higher]])
        assert result.advantages.tolist()[0] == pytest.approx([-half, half])
        assert result.advantages.mean().item() == pytest.approx(0, abs=1e-15)


def test_permuting_siblings_permutes_advantages() -> None:
    rewards = torch.rand(3, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    scored = torch.tensor([[True] * 6, [True, False] * 3, [False] + [True] * 5])
    order = torch.tensor([3, 1, 5, 0, 2, 4])
    plain = group_advantages(rewards, scored, std_floor=FLOOR)
    permuted = group_advantages(rewards[:, order], scored[:, order], std_floor=FLOOR)
    assert torch.allclose(permuted.advantages, plain.advantages[:, order])
    assert torch.equal(permuted.in_loss, plain.in_loss[:, order])


@given(GROUPS)
@settings(max_examples=80, deadline=None)
def test_a_group_equals_the_loop_is_centred_and_bounded(group: list[tuple[int, bool]]) -> None:
    rewards, scored = [reward / 64 for reward, _ in group], [is_scored for _, is_scored in group]
    held = [reward if is_scored else math.nan for reward, is_scored in zip(rewards, scored, strict=True)]
    result = advantages_of([held], torch.tensor([scored]))
    assert result.advantages[0].tolist() == pytest.approx(by_loop(rewards, scored), abs=1e-12)
    assert result.advantages.sum().item() == pytest.approx(0, abs=1e-12)
    n = max(1, sum(scored))
    assert result.advantages.abs().max().item() <= (n - 1) / math.sqrt(n) + 1e-12
    assert result.has_signal.tolist() == [any(by_loop(rewards, scored))]


@given(GROUPS, st.integers(-64, 64), st.sampled_from([0.25, 2.0, 8.0]))
@settings(max_examples=40, deadline=None)
def test_shift_and_scale_of_the_rewards_do_not_matter_above_the_floor(
    group: list[tuple[int, bool]], shift: int, scale: float
) -> None:
    rewards = [float(reward) for reward, _ in group]
    scored = torch.tensor([[is_scored for _, is_scored in group]])
    plain = advantages_of([rewards], scored).advantages
    moved = advantages_of([[scale * reward + shift for reward in rewards]], scored).advantages
    assert torch.allclose(plain, moved, atol=1e-12)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_scored_reward_that_is_not_finite_is_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="not finite"):
        advantages_of([[bad, 1.0]])


def test_wrong_shapes_types_and_floors_are_refused() -> None:
    rewards, scored = torch.rand(2, 3), torch.ones(2, 3, dtype=torch.bool)
    with pytest.raises(ValueError, match=r"must both be \[P, G\]"):
        group_advantages(rewards, scored[:, :2], std_floor=FLOOR)
    with pytest.raises(ValueError, match=r"must both be \[P, G\]"):
        group_advantages(rewards[:, :0], scored[:, :0], std_floor=FLOOR)
    with pytest.raises(ValueError, match="floating point"):
        group_advantages(torch.ones(2, 3, dtype=torch.long), scored, std_floor=FLOOR)
    with pytest.raises(ValueError, match="scored bool"):
        group_advantages(rewards, torch.ones(2, 3), std_floor=FLOOR)
    with pytest.raises(ValueError, match="std_floor"):
        group_advantages(rewards, scored, std_floor=0.0)
