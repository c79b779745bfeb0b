import math

import pytest
import torch
from torch import Tensor

from elocution.grpo import kl
from elocution.grpo.advantages import group_advantages
from elocution.grpo.losses import LossSettings, clipped_loss


def loss_of(
    logprobs: Tensor, old: Tensor, advantages: Tensor, mask: Tensor, num_tokens: int
) -> tuple[Tensor, dict[str, int]]:
    cells = clipped_loss(logprobs, old, advantages, mask, LossSettings(clip_low=0.2, clip_high=0.28))
    counts = {"clipped_tokens": int(cells.bounded.sum()), "tokens": int(mask.sum())}
    return cells.loss.sum() / num_tokens, counts


def kl_k3(logprobs: Tensor, reference: Tensor, mask: Tensor, *, num_tokens: int) -> Tensor:
    return kl.kl_k3(logprobs, reference, mask).sum() / num_tokens


def cells(*values: float) -> Tensor:
    """One completion of one channel, [1, T, 1]."""
    return torch.tensor(values, dtype=torch.float64).reshape(1, -1, 1)


def gradient(logprobs: Tensor) -> Tensor:
    assert logprobs.grad is not None
    return logprobs.grad


def random_step(rows: int, length: int, channels: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Log-probs, old log-probs, advantages and mask of a step whose ratios lie on both sides of both bounds."""
    generator = torch.Generator().manual_seed(1)
    old = torch.randn(rows, length, channels, dtype=torch.float64, generator=generator)
    logprobs = old + 0.3 * torch.randn(rows, length, channels, dtype=torch.float64, generator=generator)
    advantages = torch.randn(rows, dtype=torch.float64, generator=generator)
    return logprobs, old, advantages, torch.rand(rows, length, channels, generator=generator) < 0.6


@pytest.mark.parametrize(
    ("ratio", "advantage", "expected", "slope", "clipped"),
    [
        (1.0, 2.0, -2.0, -2.0, 0),  # on policy: the advantage itself
        (1.5, 2.0, -2.56, 0.0, 1),  # raised past 1.28 and good: held at 1.28 * 2
        (1.5, -2.0, 3.0, 3.0, 0),  # raised and bad: pushed down in full, 1.5 * 2
        (0.5, -2.0, 1.6, 0.0, 1),  # lowered past 0.8 and bad: held at 0.8 * 2
        (0.5, 2.0, -1.0, -1.0, 0),  # lowered and good: pulled up in full, 0.5 * 2
        (1.5, 0.0, 0.0, 0.0, 0),  # average: nothing to push, and nothing that the bound holds back
    ],
)
def test_one_cell_worked_by_hand(ratio: float, advantage: float, expected: float, slope: float, clipped: int) -> None:
    # d(ratio A) / d(logprob) is ratio A, so the slope of an unheld cell is the loss itself.
    logprob = cells(math.log(ratio)).requires_grad_()
    loss, counts = loss_of(logprob, cells(0.0), torch.tensor([advantage]), torch.ones(1, 1, 1, dtype=torch.bool), 1)
    loss.backward()
    assert loss.item() == pytest.approx(expected)
    assert gradient(logprob).item() == pytest.approx(slope)
    assert counts == {"clipped_tokens": clipped, "tokens": 1}


@pytest.mark.parametrize("advantage", [1.0, 0.0])
def test_a_ratio_that_overflows_where_it_is_held_gives_no_gradient_and_no_nan(advantage: float) -> None:
    logprob = torch.full((1, 1, 1), 100.0, requires_grad=True)  # exp(100) is infinite in fp32
    mask = torch.ones(1, 1, 1, dtype=torch.bool)
    loss, _ = loss_of(logprob, torch.zeros(1, 1, 1), torch.tensor([advantage]), mask, 1)
    loss.backward()
    assert loss.item() == pytest.approx(-1.28 * advantage)
    assert gradient(logprob).item() == 0


def test_ratio_one_gives_the_reinforce_gradient() -> None:
    logprobs, _, advantages, mask = random_step(3, 4, 2)
    logprobs.requires_grad_()
    loss, counts = loss_of(logprobs, logprobs.detach(), advantages, mask, int(mask.sum()))
    loss.backward()
    assert torch.allclose(gradient(logprobs), -(mask * advantages[:, None, None]) / mask.sum())
    assert counts == {"clipped_tokens": 0, "tokens": int(mask.sum())}


def test_s54_the_first_loss_of_a_step_is_zero_and_its_gradient_is_not() -> None:
    # One group of equally long completions: the advantages sum to 0, so does the loss at ratio 1.
    rewards = torch.tensor([[0.1, 0.5, 0.9, 0.2]], dtype=torch.float64)
    advantages = group_advantages(rewards, torch.ones(1, 4, dtype=torch.bool), std_floor=0.01).advantages[0]
    logprobs = torch.randn(4, 6, 1, dtype=torch.float64, requires_grad=True)
    mask = torch.ones(4, 6, 1, dtype=torch.bool)
    loss, _ = loss_of(logprobs, logprobs.detach(), advantages, mask, 24)
    loss.backward()
    assert loss.item() == pytest.approx(0, abs=1e-15)
    assert torch.allclose(gradient(logprobs), -advantages[:, None, None].expand(4, 6, 1) / 24)


def test_equal_rewards_give_no_gradient() -> None:
    result = group_advantages(torch.full((1, 4), 0.7), torch.ones(1, 4, dtype=torch.bool), std_floor=0.01)
    logprobs, old, _, mask = random_step(4, 5, 1)
    logprobs.requires_grad_()
    loss_of(logprobs, old, result.advantages[0], mask, int(mask.sum()))[0].backward()
    assert gradient(logprobs).abs().max().item() == 0


@pytest.mark.parametrize("hostile", [math.nan, math.inf, -math.inf, 1e30])
def test_s51_masked_cells_may_hold_anything_and_get_no_gradient(hostile: float) -> None:
    # Cells: one that counts, then the hostile value as new, as old and as both.
    mask = torch.tensor([True, False, False, False]).reshape(1, 4, 1)
    logprobs = cells(-1.0, hostile, -1.0, hostile).requires_grad_()
    old = cells(-1.0, -1.0, hostile, hostile)
    loss, counts = loss_of(logprobs, old, torch.tensor([3.0]), mask, 1)
    kl = kl_k3(logprobs, old, mask, num_tokens=1)
    (loss + kl).backward()
    assert loss.item() == pytest.approx(-3.0)
    assert kl.item() == 0
    assert gradient(logprobs).flatten().tolist() == [-3.0, 0.0, 0.0, 0.0]
    assert counts == {"clipped_tokens": 0, "tokens": 1}


def test_s51_a_completion_that_is_wholly_masked_may_have_any_advantage() -> None:
    mask = torch.tensor([True, False]).reshape(2, 1, 1)
    logprobs = torch.zeros(2, 1, 1, requires_grad=True)
    loss, _ = loss_of(logprobs, torch.zeros(2, 1, 1), torch.tensor([2.0, math.nan]), mask, 1)
    loss.backward()
    assert loss.item() == -2.0
    assert gradient(logprobs).flatten().tolist() == [-2.0, 0.0]


def test_s51_bf16_logprobs_keep_small_gradients() -> None:
    # A difference of bf16 numbers is taken in fp32: 2^-9 above 1 is kept, where bf16 would round the ratio to 1.
    logprobs = torch.full((1, 1, 1), 2.0**-9, dtype=torch.bfloat16)
    mask = torch.ones(1, 1, 1, dtype=torch.bool)
    loss, _ = loss_of(logprobs, torch.zeros_like(logprobs), torch.tensor([1.0]), mask, 1)
    assert loss.dtype is torch.float32
    assert loss.item() == pytest.approx(-math.exp(2.0**-9), rel=1e-6)


@pytest.mark.parametrize("channels", [1, 3])
def test_s50_cutting_the_step_into_micro_batches_changes_no_gradient_or_count(channels: int) -> None:
    start, old, advantages, mask = random_step(32, 5, channels)
    num_tokens = int(mask.sum())
    gradients, losses, counts = [], [], []
    for size in (32, 8, 5, 1):
        logprobs = start.clone().requires_grad_()
        total, clipped, tokens = 0.0, 0, 0
        for first in range(0, 32, size):
            part = slice(first, first + size)
            loss, metrics = loss_of(logprobs[part], old[part], advantages[part], mask[part], num_tokens)
            loss = loss + 0.1 * kl_k3(logprobs[part], old[part], mask[part], num_tokens=num_tokens)
            loss.backward()
            total += loss.item()
            clipped, tokens = clipped + metrics["clipped_tokens"], tokens + metrics["tokens"]
        gradients.append(gradient(logprobs))
        losses.append(total)
        counts.append((clipped, tokens))
    assert counts[0][0] > 0
    assert counts[0][1] == num_tokens
    assert counts == [counts[0]] * 4
    assert losses == pytest.approx([losses[0]] * 4, abs=1e-12)
    for other in gradients[1:]:
        assert torch.allclose(other, gradients[0], rtol=0, atol=1e-15)


def test_padding_and_the_order_of_completions_do_not_change_the_loss() -> None:
    logprobs, old, advantages, mask = random_step(6, 4, 2)
    num_tokens = int(mask.sum())
    plain, counts = loss_of(logprobs, old, advantages, mask, num_tokens)
    order = torch.tensor([4, 0, 5, 2, 1, 3])
    moved = [torch.nn.functional.pad(values[order], (0, 0, 0, 3), value=math.nan) for values in (logprobs, old)]
    moved_mask = torch.nn.functional.pad(mask[order], (0, 0, 0, 3), value=False)
    other, other_counts = loss_of(moved[0], moved[1], advantages[order], moved_mask, num_tokens)
    assert other.item() == pytest.approx(plain.item(), abs=1e-14)
    assert other_counts == counts


def test_loss_and_gradient_equal_a_loop_over_cells() -> None:
    start, old, advantages, mask = random_step(4, 3, 2)
    num_tokens = int(mask.sum())

    def by_loop(logprobs: Tensor) -> float:
        total = 0.0
        for b in range(4):
            for t in range(3):
                for c in range(2):
                    if mask[b, t, c]:
                        ratio, advantage = math.exp(logprobs[b, t, c] - old[b, t, c]), advantages[b].item()
                        total += min(ratio * advantage, max(0.8, min(1.28, ratio)) * advantage)
        return -total / num_tokens

    logprobs = start.clone().requires_grad_()
    loss, _ = loss_of(logprobs, old, advantages, mask, num_tokens)
    loss.backward()
    assert loss.item() == pytest.approx(by_loop(start))
    for index in range(start.numel()):
        step = torch.zeros_like(start)
        step.view(-1)[index] = 1e-6
        slope = (by_loop(start + step) - by_loop(start - step)) / 2e-6
        assert gradient(logprobs).view(-1)[index].item() == pytest.approx(slope, abs=1e-8)


def test_k3_worked_by_hand() -> None:
    # Reference log-prob above the policy's by ln 2: 2 - ln 2 - 1; below by ln 2: 1/2 + ln 2 - 1. Their slopes in the
    # policy's log-prob, 1 - exp(d): -1 and 1/2, each over two cells.
    policy = torch.zeros(1, 2, 1, dtype=torch.float64, requires_grad=True)
    value = kl_k3(policy, cells(math.log(2), -math.log(2)), torch.ones(1, 2, 1, dtype=torch.bool), num_tokens=2)
    value.backward()
    assert value.item() == pytest.approx(((1 - math.log(2)) + (math.log(2) - 0.5)) / 2)
    assert gradient(policy).flatten().tolist() == pytest.approx([-0.5, 0.25])


def test_k3_is_never_negative_and_zero_without_a_difference() -> None:
    logprobs, reference, _, mask = random_step(8, 5, 2)
    assert kl_k3(logprobs, logprobs, mask, num_tokens=1).item() == 0
    assert kl_k3(logprobs, reference, mask, num_tokens=1).item() > 0


def test_k3_of_a_small_difference_is_not_lost_in_rounding() -> None:
    # d = 1e-4 gives d^2 / 2 = 5e-9; exp(d) - d - 1 taken term by term in fp32 is off by as much as 6e-8.
    value = kl_k3(
        torch.zeros(1, 1, 1), torch.full((1, 1, 1), 1e-4), torch.ones(1, 1, 1, dtype=torch.bool), num_tokens=1
    )
    assert value.item() == pytest.approx(5e-9, rel=1e-2)


def test_k3_averages_to_the_divergence_over_the_policys_own_samples() -> None:
    # KL of (3/4, 1/4) from (1/2, 1/2) is 3/4 ln(3/2) + 1/4 ln(1/2); the estimator weighted by 3/4 and 1/4 is exact.
    policy = cells(math.log(3 / 4), math.log(3 / 4), math.log(3 / 4), math.log(1 / 4))
    value = kl_k3(policy, cells(*[math.log(1 / 2)] * 4), torch.ones(1, 4, 1, dtype=torch.bool), num_tokens=4)
    assert value.item() == pytest.approx(0.75 * math.log(1.5) + 0.25 * math.log(0.5))


def test_wrong_shapes_and_masks_are_refused() -> None:
    grid, mask = torch.zeros(1, 2, 1), torch.ones(1, 2, 1, dtype=torch.bool)
    with pytest.raises(ValueError, match=r"expected \[B, T, C\] everywhere"):
        loss_of(grid, torch.zeros(1, 3, 1), torch.zeros(1), mask, 2)
    with pytest.raises(ValueError, match="advantages have shape"):
        loss_of(grid, grid, torch.zeros(1, 2), mask, 2)
    with pytest.raises(ValueError, match="must be bool"):
        loss_of(grid, grid, torch.zeros(1), mask.float(), 2)
