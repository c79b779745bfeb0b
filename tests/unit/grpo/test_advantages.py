import math
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from elocution.grpo.advantages import (
    ADVANTAGES,
    GroupAdvantages,
    dr_grpo_advantages,
    gdpo_advantages,
    group_advantages,
    reinforce_pp_advantages,
    rloo_advantages,
)

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


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e16, -1e16])
def test_a_scored_reward_that_is_not_finite_or_too_large_is_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="not finite"):
        advantages_of([[bad, 1.0]])


def test_wrong_shapes_types_and_floors_are_refused() -> None:
    rewards, scored = torch.rand(2, 3), torch.ones(2, 3, dtype=torch.bool)
    with pytest.raises(ValueError, match=r"must both be \[P, G\]"):
        group_advantages(rewards, scored[:, :2], std_floor=FLOOR)
    with pytest.raises(ValueError, match=r"must both be \[P, G\]"):
        group_advantages(rewards[:, :0], scored[:, :0], std_floor=FLOOR)
    with pytest.raises(ValueError, match=r"must both be \[P, G\]"):
        group_advantages(torch.rand(2, 3, 1), torch.ones(2, 3, 1, dtype=torch.bool), std_floor=FLOOR)
    for wrong_type in (torch.long, torch.float16):
        with pytest.raises(ValueError, match="floating point"):
            group_advantages(torch.ones(2, 3, dtype=wrong_type), scored, std_floor=FLOOR)
    with pytest.raises(ValueError, match="scored bool"):
        group_advantages(rewards, torch.ones(2, 3), std_floor=FLOOR)
    with pytest.raises(ValueError, match="std_floor"):
        group_advantages(rewards, scored, std_floor=0.0)


# From here on: what all estimators promise, and each one's formula. Batches hold two rewards a completion [P, G, 2];
# the estimators of one reward take the first, GDPO both.
ESTIMATORS = [*ADVANTAGES, "gdpo"]
NORMALISED = ["grpo", "reinforce_pp", "gdpo"]
OVER_THE_BATCH = ["reinforce_pp", "gdpo"]
WEIGHTS = (1.0, 0.5)


@st.composite
def batches(draw: st.DrawFn) -> tuple[Tensor, Tensor]:
    """Rewards [P, G, 2] in multiples of 1/64, NaN where unscored; scored [P, G]."""
    groups, siblings = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    size = groups * siblings
    values = draw(st.lists(st.integers(0, 5), min_size=2 * size, max_size=2 * size))
    scored = torch.tensor(draw(st.lists(st.booleans(), min_size=size, max_size=size))).reshape(groups, siblings)
    rewards = torch.tensor(values, dtype=torch.float64).reshape(groups, siblings, 2) / 64
    return rewards.masked_fill(~scored[..., None], torch.nan), scored


def estimate(name: str, rewards: Tensor, scored: Tensor, *, std_floor: float = FLOOR) -> GroupAdvantages:
    if name == "gdpo":
        return gdpo_advantages(rewards, scored, torch.tensor(WEIGHTS), std_floor=std_floor)
    return ADVANTAGES[name](rewards[..., 0], scored, std_floor=std_floor)


def batch_by_loop(name: str, rewards: list[list[list[float]]], scored: list[list[bool]]) -> list[list[float]]:
    """The formulas written out, one completion after another."""
    if name == "gdpo":
        parts = [
            [by_loop([reward[r] for reward in group], mask) for group, mask in zip(rewards, scored, strict=True)]
            for r in (0, 1)
        ]
        rewards = [
            [[(WEIGHTS[0] * one + WEIGHTS[1] * two) / sum(WEIGHTS)] for one, two in zip(*pair, strict=True)]
            for pair in zip(*parts, strict=True)
        ]
    rows = []
    for group, mask in zip(rewards, scored, strict=True):
        known = [reward[0] for reward, is_scored in zip(group, mask, strict=True) if is_scored]
        if len(known) < 2 or max(known) - min(known) <= 1e-6:
            rows.append([0.0] * len(group))
            continue
        row = []
        for reward, is_scored in zip(group, mask, strict=True):
            others = (sum(known) - reward[0]) / (len(known) - 1)
            row.append((reward[0] - (others if name == "rloo" else sum(known) / len(known))) if is_scored else 0.0)
        if name == "grpo":
            std = math.sqrt(sum(value**2 for value in row) / (len(known) - 1))
            row = [value / max(std, FLOOR) for value in row]
        rows.append(row)
    if name in OVER_THE_BATCH:
        count = sum(sum(mask) for row, mask in zip(rows, scored, strict=True) if any(row))
        std = math.sqrt(sum(value**2 for row in rows for value in row) / max(count - 1, 1))
        rows = [[value / max(std, FLOOR) for value in row] for row in rows]
    return rows


def test_estimators_without_a_deviation_worked_by_hand() -> None:
    # 0, 1, 1/2: mean 1/2; the others' means 3/4, 1/4, 1/2. 1, 2, 6: mean 3; the others' means 4, 7/2, 3/2.
    rewards = torch.tensor([[0.0, 1.0, 0.5], [1.0, 2.0, 6.0]], dtype=torch.float64)
    scored = torch.ones(2, 3, dtype=torch.bool)
    dr_grpo = dr_grpo_advantages(rewards, scored, std_floor=FLOOR)
    assert dr_grpo.advantages.tolist() == [[-0.5, 0.5, 0.0], [-2.0, -1.0, 3.0]]
    rloo = rloo_advantages(rewards, scored, std_floor=FLOOR)
    assert rloo.advantages.tolist() == [[-0.75, 0.75, 0.0], [-3.0, -1.5, 4.5]]
    for result in (dr_grpo, rloo):
        assert result.std.tolist() == pytest.approx([0.5, math.sqrt(7)])
    # The third is unscored: 0 and 1 have one other each.
    scored[0, 2] = False
    assert dr_grpo_advantages(rewards, scored, std_floor=FLOOR).advantages[0].tolist() == [-0.5, 0.5, 0.0]
    assert rloo_advantages(rewards, scored, std_floor=FLOOR).advantages[0].tolist() == [-1.0, 1.0, 0.0]


def test_reinforce_pp_worked_by_hand() -> None:
    # Differences -1/2, 1/2, 0, -2, -1, 3: squares sum to 29/2, over 6 - 1: variance 29/10. The last two groups have
    # equal rewards and one score: counting them would make it 29/2 over 9 - 1.
    rewards = [[0.0, 1.0, 0.5], [1.0, 2.0, 6.0], [4.0, 4.0, math.nan], [math.nan, math.nan, 9.0]]
    values = torch.tensor(rewards, dtype=torch.float64)
    result = reinforce_pp_advantages(values, ~values.isnan(), std_floor=FLOOR)
    root = math.sqrt(2.9)
    expected = [[-0.5 / root, 0.5 / root, 0.0], [-2 / root, -1 / root, 3 / root], [0.0] * 3, [0.0] * 3]
    assert torch.allclose(result.advantages, torch.tensor(expected, dtype=torch.float64))
    assert result.has_signal.tolist() == [True, True, False, False]
    assert result.std.tolist() == pytest.approx([0.5, math.sqrt(7), 0.0, 0.0])  # inside the group, not the batch


def test_gdpo_worked_by_hand() -> None:
    # h = 1/sqrt(2). Group 1: first reward -h, h, second without spread. Group 2: first h, -h, second -h, h.
    # Weights 2 and 1, in shares 2/3 and 1/3: sums -2h/3, 2h/3 and h/3, -h/3. Squares sum to 4/9 + 1/9, over 4 - 1:
    # variance 5/27. (2h/3)^2 / (5/27) = 6/5 and (h/3)^2 / (5/27) = 3/10.
    rewards = torch.tensor([[[0.0, 5.0], [1.0, 5.0]], [[1.0, 0.0], [0.0, 300.0]]], dtype=torch.float64)
    scored = torch.ones(2, 2, dtype=torch.bool)
    result = gdpo_advantages(rewards, scored, torch.tensor([2.0, 1.0]), std_floor=FLOOR)
    large, small = math.sqrt(6 / 5), math.sqrt(3 / 10)
    expected = torch.tensor([[-large, large], [small, -small]], dtype=torch.float64)
    assert torch.allclose(result.advantages, expected)
    assert result.std.tolist() == pytest.approx([2 / 3, 1 / 3])
    # With equal weights the rewards of group 2 cancel, and it is as if it had not been drawn.
    cancelled = gdpo_advantages(rewards, scored, torch.tensor([1.0, 1.0]), std_floor=FLOOR)
    assert cancelled.has_signal.tolist() == [True, False]
    half = 1 / math.sqrt(2)
    assert torch.allclose(cancelled.advantages, torch.tensor([[-half, half], [0.0, 0.0]], dtype=torch.float64))


def test_s57_rewards_normalised_one_by_one_tell_mixes_apart_that_their_sum_does_not() -> None:
    # One group, four mixes of two rewards of 0 or 1; the second weighs a tenth, and stands out as much within its column.
    mixes = torch.tensor([[[1.0, 0.0], [0.0, 0.1], [0.0, 0.0], [1.0, 0.1]]], dtype=torch.float64)
    scored = torch.ones(1, 4, dtype=torch.bool)
    summed = group_advantages(mixes.sum(dim=-1), scored, std_floor=FLOOR).advantages[0]
    decoupled = gdpo_advantages(mixes, scored, torch.tensor([1.0, 1.0]), std_floor=FLOOR).advantages[0]
    # Each column is two of h and two of -h: their sums are 0, 0, -2h and 2h, whose deviation is sqrt(8/3) h.
    assert decoupled.tolist() == pytest.approx([0.0, 0.0, -math.sqrt(3 / 2), math.sqrt(3 / 2)])
    # The sum's deviations from 0.55 are 0.45, -0.45, -0.55, 0.55: the second reward hardly counts.
    std = math.sqrt((2 * 0.45**2 + 2 * 0.55**2) / 3)
    assert summed.tolist() == pytest.approx([0.45 / std, -0.45 / std, -0.55 / std, 0.55 / std])


def test_only_the_proportions_of_gdpo_weights_matter_and_a_negative_one_is_a_penalty() -> None:
    rewards = torch.rand(3, 4, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    scored = torch.ones(3, 4, dtype=torch.bool)

    def weighted(first: float, second: float, values: Tensor = rewards) -> Tensor:
        return gdpo_advantages(values, scored, torch.tensor([first, second]), std_floor=FLOOR).advantages

    assert torch.allclose(weighted(2.0, 3.0), weighted(2e-7, 3e-7))
    assert torch.allclose(weighted(2.0, -3.0), weighted(2.0, 3.0, rewards * torch.tensor([1.0, -1.0])))
    assert torch.allclose(weighted(2.0, 0.0), weighted(1.0, 0.0, rewards[:, :, [0, 0]]))
    assert not torch.allclose(weighted(2.0, 3.0), weighted(3.0, 2.0), atol=0.1)


@pytest.mark.parametrize("name", OVER_THE_BATCH)
def test_a_nearly_constant_batch_is_not_blown_up(name: str) -> None:
    # -/+ 5e-6 over the floor, 0.01; GDPO does so twice, first per reward, and then multiplies by its share, 2/3.
    rewards = torch.tensor([[[0.9, 0.5], [0.90001, 0.5]]], dtype=torch.float64)
    expected = {"reinforce_pp": 5e-4, "gdpo": 5e-2 * 2 / 3}[name]
    result = estimate(name, rewards, torch.ones(1, 2, dtype=torch.bool))
    assert result.advantages[0].tolist() == pytest.approx([-expected, expected])


@pytest.mark.parametrize("name", ESTIMATORS)
@given(batch=batches())
@settings(max_examples=50, deadline=None)
def test_each_estimator_equals_its_loop_and_is_finite_and_centred(name: str, batch: tuple[Tensor, Tensor]) -> None:
    rewards, scored = batch
    result = estimate(name, rewards, scored)
    expected = torch.tensor(batch_by_loop(name, rewards.tolist(), scored.tolist()), dtype=torch.float64)
    assert bool(result.advantages.isfinite().all())
    assert torch.allclose(result.advantages, expected, atol=1e-10)
    assert torch.allclose(result.advantages.sum(dim=1), torch.zeros(len(rewards), dtype=torch.float64), atol=1e-10)
    assert torch.equal(result.has_signal, (expected != 0).any(dim=1))
    assert torch.equal(result.in_loss, scored & result.has_signal[:, None])
    if name in OVER_THE_BATCH:
        count = max(1, int(result.in_loss.sum()))
        assert float(result.advantages.abs().max()) <= (count - 1) / math.sqrt(count) + 1e-12


@pytest.mark.parametrize("name", ESTIMATORS)
@given(batch=batches(), data=st.data())
@settings(max_examples=30, deadline=None)
def test_order_of_siblings_and_unscored_siblings_do_not_matter(
    name: str, batch: tuple[Tensor, Tensor], data: st.DataObject
) -> None:
    rewards, scored = batch
    plain = estimate(name, rewards, scored)
    order = data.draw(st.permutations(range(scored.shape[1])))
    permuted = estimate(name, rewards[:, order], scored[:, order])
    assert torch.allclose(permuted.advantages, plain.advantages[:, order], atol=1e-12)
    assert torch.equal(permuted.in_loss, plain.in_loss[:, order])
    unscored = torch.full((len(rewards), 2, 2), data.draw(st.sampled_from([math.nan, math.inf, -7.0])))
    more = estimate(name, torch.cat([rewards, unscored], 1), torch.cat([scored, torch.zeros(len(rewards), 2) > 0], 1))
    assert torch.allclose(more.advantages[:, :-2], plain.advantages, atol=1e-12)
    assert torch.equal(more.has_signal, plain.has_signal)
    assert not more.advantages[:, -2:].any()


@pytest.mark.parametrize("name", ESTIMATORS)
@given(batch=batches(), scale=st.sampled_from([0.25, 3.0, 1e6]))
@settings(max_examples=30, deadline=None)
def test_scaling_the_rewards_leaves_normalised_advantages_and_scales_the_others(
    name: str, batch: tuple[Tensor, Tensor], scale: float
) -> None:
    rewards, scored = batch
    plain = estimate(name, rewards, scored, std_floor=1e-9).advantages
    scaled = estimate(name, scale * rewards, scored, std_floor=1e-9).advantages
    assert torch.allclose(scaled, plain if name in NORMALISED else scale * plain, atol=1e-9)


@pytest.mark.parametrize("name", ESTIMATORS)
@given(batch=batches())
@settings(max_examples=30, deadline=None)
def test_groups_without_signal_change_nothing_for_the_others(name: str, batch: tuple[Tensor, Tensor]) -> None:
    rewards, scored = batch
    silent = torch.full((2, *rewards.shape[1:]), 0.3, dtype=torch.float64)
    silent_scored = torch.ones(2, rewards.shape[1], dtype=torch.bool)
    silent_scored[1, 1:] = False
    result = estimate(name, torch.cat([silent, rewards]), torch.cat([silent_scored, scored]))
    assert torch.allclose(result.advantages[2:], estimate(name, rewards, scored).advantages, atol=1e-12)
    assert not result.advantages[:2].any()
    assert not result.in_loss[:2].any()


@pytest.mark.parametrize("name", ["grpo", "dr_grpo", "rloo"])
def test_the_same_group_twice_is_two_groups(name: str) -> None:
    rewards = torch.rand(1, 3, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    scored = torch.ones(1, 3, dtype=torch.bool)
    once = estimate(name, rewards, scored).advantages
    twice = estimate(name, rewards.repeat(2, 1, 1), scored.repeat(2, 1)).advantages
    assert torch.equal(twice, once.repeat(2, 1))


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("reward", [0.1, 0.7, 1e15])
def test_equal_rewards_give_zero_in_single_precision_too(name: str, reward: float) -> None:
    result = estimate(name, torch.full((2, 7, 2), reward), torch.ones(2, 7, dtype=torch.bool))
    assert not result.advantages.any()
    assert not result.has_signal.any()


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_largest_rewards_keep_their_order(name: str, dtype: torch.dtype) -> None:
    rewards = torch.tensor([[[-1e15] * 2, [1e15] * 2], [[0.0] * 2, [1e15] * 2]], dtype=dtype)
    advantages = estimate(name, rewards, torch.ones(2, 2, dtype=torch.bool)).advantages
    assert bool(advantages.isfinite().all())
    assert bool((advantages[:, 1] > 0.3).all())


@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_estimator_checks_its_arguments(name: str) -> None:
    rewards, scored = torch.rand(2, 3, 2), torch.ones(2, 3, dtype=torch.bool)
    with pytest.raises(ValueError, match=r"must both be \[P, G\]"):
        estimate(name, rewards, scored[:, :2])
    with pytest.raises(ValueError, match="std_floor"):
        estimate(name, rewards, scored, std_floor=0.0)
    with pytest.raises(ValueError, match="not finite"):
        estimate(name, torch.full_like(rewards, torch.nan), scored)


def test_wrong_gdpo_rewards_and_weights_are_refused() -> None:
    rewards, scored = torch.rand(2, 3, 2), torch.ones(2, 3, dtype=torch.bool)
    one = torch.tensor(1.0)
    for wrong_rewards, weights in ((rewards[..., 0], one), (rewards, torch.ones(3)), (rewards, one)):
        with pytest.raises(ValueError, match=r"must be \[P, G, R\]"):
            gdpo_advantages(wrong_rewards, scored, weights, std_floor=FLOOR)
    for bad in ([0.0, 0.0], [1.0, math.nan], [math.inf, 1.0]):
        with pytest.raises(ValueError, match="weights must be finite"):
            gdpo_advantages(rewards, scored, torch.tensor(bad), std_floor=FLOOR)
    with pytest.raises(ValueError, match="weights must be finite"):
        gdpo_advantages(rewards[..., :0], scored, torch.ones(0), std_floor=FLOOR)
    rewards[0, 0, 1] = torch.nan  # scored, but not by this one
    with pytest.raises(ValueError, match="not finite"):
        gdpo_advantages(rewards, scored, torch.ones(2), std_floor=FLOOR)
