import math

import pytest
import torch
from torch import Tensor

from elocution.grpo.losses import clipped_policy_loss, kl_k3


def loss_of(logprobs: Tensor, old: Tensor, advantages: Tensor, mask: Tensor, num_tokens: int) -> tuple[Tensor, int]:
    loss, metrics = clipped_policy_loss(
        logprobs, old, advantages, mask, clip_low=0.2, clip_high=0.28, num_tokens=num_tokens
    )
    return loss, int(metrics["clipped_tokens"])


def cell(value: float) -> Tensor:
    return torch.tensor([[[value]]], dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize(
    ("ratio", "advantage", "expected", "clipped"),
    [
        (1.0, 2.0, -2.0, 0),  # on policy: the advantage itself
        (1.5, 2.0, -2.56, 1),  # raised past 1.28 and good: held at 1.28 * 2
        (1.5, -2.0, 3.0, 0),  # raised and bad: pushed down in full
        (0.5, -2.0, 1.6, 1),  # lowered past 0.8 and bad: held at 0.8 * 2
        (0.5, 2.0, -1.0, 0),  # lowered and good: pulled up in full
    ],
)
def test_one_cell_worked_by_hand(ratio: float, advantage: float, expected: float, clipped: int) -> None:
    logprob = cell(math.log(ratio))
    loss, count = loss_of(
        logprob,
        torch.zeros(1, 1, 1, dtype=torch.float64),
        torch.tensor([advantage]),
        torch.ones(1, 1, 1, dtype=torch.bool),
        1,
    )
    loss.backward()
    assert loss.item() == pytest.approx(expected)
    assert count == clipped
    assert logprob.grad is not None
    assert (logprob.grad.item() == 0) == bool(clipped)


def test_ratio_one_gives_the_reinforce_gradient() -> None:
    logprobs = torch.randn(3, 4, 2, dtype=torch.float64, requires_grad=True)
    advantages = torch.tensor([1.0, -0.5, 2.0], dtype=torch.float64)
    mask = torch.rand(3, 4, 2) < 0.7
    loss, _ = loss_of(logprobs, logprobs.detach(), advantages, mask, int(mask.sum()))
    loss.backward()
    expected = -(mask * advantages[:, None, None]) / mask.sum()
    assert logprobs.grad is not None
    assert torch.allclose(logprobs.grad, expected)


def test_s51_masked_cells_may_hold_anything_and_get_no_gradient() -> None:
    mask = torch.tensor([[[True], [False], [False]]])
    logprobs = torch.tensor([[[-1.0], [math.nan], [-math.inf]]], dtype=torch.float64, requires_grad=True)
    old = torch.tensor([[[-1.0], [0.0], [math.inf]]], dtype=torch.float64)
    loss, _ = loss_of(logprobs, old, torch.tensor([3.0]), mask, 1)
    (loss + kl_k3(logprobs, old, mask, num_tokens=1)).backward()
    assert loss.item() == pytest.approx(-3.0)
    assert logprobs.grad is not None
    assert logprobs.grad[0, 1:].abs().max().item() == 0


def test_s50_cutting_the_step_into_micro_batches_changes_no_gradient() -> None:
    generator = torch.Generator().manual_seed(1)
    old = torch.randn(32, 5, 1, dtype=torch.float64, generator=generator) * 0.3
    start = old + 0.2 * torch.randn(32, 5, 1, dtype=torch.float64, generator=generator)
    advantages = torch.randn(32, dtype=torch.float64, generator=generator)
    mask = torch.rand(32, 5, 1, generator=generator) < 0.6
    gradients = []
    for size in (32, 8, 5, 1):
        logprobs = start.clone().requires_grad_()
        for first in range(0, 32, size):
            part = slice(first, first + size)
            loss, _ = loss_of(logprobs[part], old[part], advantages[part], mask[part], int(mask.sum()))
            (loss + 0.1 * kl_k3(logprobs[part], old[part], mask[part], num_tokens=int(mask.sum()))).backward()
        gradients.append(logprobs.grad)
    for gradient in gradients[1:]:
        assert gradient is not None
        assert gradients[0] is not None
        assert torch.allclose(gradient, gradients[0], rtol=0, atol=1e-15)


def test_loss_equals_a_loop_over_cells() -> None:
    generator = torch.Generator().manual_seed(2)
    logprobs, old = torch.randn(2, 4, 3, 2, dtype=torch.float64, generator=generator) * 0.4
    advantages = torch.randn(4, dtype=torch.float64, generator=generator)
    mask = torch.rand(4, 3, 2, generator=generator) < 0.7
    total = 0.0
    for b in range(4):
        for t in range(3):
            for c in range(2):
                if mask[b, t, c]:
                    ratio = math.exp(logprobs[b, t, c] - old[b, t, c])
                    total += min(ratio * advantages[b], max(0.8, min(1.28, ratio)) * advantages[b])
    loss, _ = loss_of(logprobs, old, advantages, mask, int(mask.sum()))
    assert loss.item() == pytest.approx(-float(total) / int(mask.sum()))


def test_k3_worked_by_hand_and_never_negative() -> None:
    # reference log-prob above the policy's by ln 2: 2 - ln 2 - 1; below by ln 2: 1/2 + ln 2 - 1.
    policy = torch.zeros(1, 2, 1, dtype=torch.float64)
    reference = torch.tensor([[[math.log(2)], [-math.log(2)]]], dtype=torch.float64)
    value = kl_k3(policy, reference, torch.ones(1, 2, 1, dtype=torch.bool), num_tokens=2)
    assert value.item() == pytest.approx(((1 - math.log(2)) + (math.log(2) - 0.5)) / 2)
    assert kl_k3(policy, policy, torch.ones(1, 2, 1, dtype=torch.bool), num_tokens=2).item() == 0


def test_shapes_that_disagree_are_refused() -> None:
    with pytest.raises(ValueError, match="expected three"):
        loss_of(torch.zeros(1, 2, 1), torch.zeros(1, 3, 1), torch.zeros(1), torch.ones(1, 2, 1, dtype=torch.bool), 2)
    with pytest.raises(ValueError, match="at least 1"):
        loss_of(torch.zeros(1, 2, 1), torch.zeros(1, 2, 1), torch.zeros(1), torch.ones(1, 2, 1, dtype=torch.bool), 0)
