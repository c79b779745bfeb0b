"""Every objective by hand, and what all of them must leave unchanged."""

import math
from itertools import product

import pytest
import torch
from torch import Tensor

from elocution.grpo.losses import LOSSES, LossSettings, clipped_loss, gspo_loss, sapo_loss

SETTINGS = LossSettings(clip_low=0.2, clip_high=0.28, dual_clip=3.0)


def one_cell(name: str, ratio: float, advantage: float) -> tuple[float, float, bool]:
    """Loss, slope in the log-prob, and whether a bound decides. The old log-prob is -2."""
    logprob = torch.full((1, 1, 1), math.log(ratio) - 2.0, dtype=torch.float64, requires_grad=True)
    mask = torch.ones(1, 1, 1, dtype=torch.bool)
    old = torch.full((1, 1, 1), -2.0, dtype=torch.float64)
    cells = LOSSES[name](logprob, old, torch.tensor([advantage]), mask, SETTINGS)
    cells.loss.sum().backward()
    assert logprob.grad is not None
    return cells.loss.item(), logprob.grad.item(), bool(cells.bounded.item())


@pytest.mark.parametrize(
    ("name", "ratio", "advantage", "loss", "slope", "bounded"),
    [
        ("clipped", 4.0, -2.0, 6.0, 0.0, True),  # raised and bad, past the dual clip: held at 3 * 2
        ("clipped", 2.5, -2.0, 5.0, 5.0, False),  # not past it: pushed down in full
        ("clipped", 4.0, 2.0, -2.56, 0.0, True),  # good: the upper bound as ever
        ("gspo", 1.5, 2.0, -2.56, 0.0, True),  # of one cell, the sequence's ratio is the cell's
        ("gspo", 1.5, -2.0, 3.0, 3.0, False),
        ("cispo", 1.5, 2.0, -1.28 * 2 * (math.log(1.5) - 2), -2.56, True),  # bounded, and still learning
        ("cispo", 0.5, 2.0, -0.8 * 2 * (math.log(0.5) - 2), -1.6, True),
        ("cispo", 1.1, -2.0, 1.1 * 2 * (math.log(1.1) - 2), 2.2, False),
        ("sapo", 1.0, 2.0, -4.0, -2.0, False),  # gate 4/tau * 1/2 = 2, slope 1 at ratio 1
        ("sapo", 1.0, -2.0, 2 * 2 / 1.05, 2.0, False),
        ("weighted_ce", 1.5, 2.0, -2 * (math.log(1.5) - 2), -2.0, False),  # whatever the ratio
    ],
)
def test_one_cell_worked_by_hand(
    name: str, ratio: float, advantage: float, loss: float, slope: float, bounded: bool
) -> None:
    assert one_cell(name, ratio, advantage) == (pytest.approx(loss), pytest.approx(slope), bounded)


def test_sapos_gate_fades_with_distance_from_1() -> None:
    # f'(r) = 4 sigmoid'(tau (r - 1)), times r for the slope in the log-prob.
    for ratio, advantage, tau in ((0.5, 2.0, 1.0), (1.7, 2.0, 1.0), (1.7, -2.0, 1.05)):
        gate = 1 / (1 + math.exp(-tau * (ratio - 1)))
        assert one_cell("sapo", ratio, advantage)[1] == pytest.approx(-advantage * ratio * 4 * gate * (1 - gate))


def step_of(rows: int = 6, length: int = 5, channels: int = 2) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(2)
    old = -3 * torch.rand(rows, length, channels, dtype=torch.float64, generator=generator)
    logprobs = old + 0.4 * torch.randn(rows, length, channels, dtype=torch.float64, generator=generator)
    advantages = torch.randn(rows, dtype=torch.float64, generator=generator)
    mask = torch.rand(rows, length, channels, generator=generator) < 0.7
    return logprobs, old, advantages, mask


def gradient_of(name: str, logprobs: Tensor, old: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    logprobs = logprobs.clone().requires_grad_()
    LOSSES[name](logprobs, old, advantages, mask, SETTINGS).loss.sum().backward()
    assert logprobs.grad is not None
    return logprobs.grad


@pytest.mark.parametrize("name", LOSSES)
def test_at_ratio_1_every_objective_has_the_reinforce_gradient(name: str) -> None:
    logprobs, _, advantages, mask = step_of()
    wanted = -advantages[:, None, None] * mask
    torch.testing.assert_close(gradient_of(name, logprobs, logprobs, advantages, mask), wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", LOSSES)
def test_without_advantage_there_is_no_gradient(name: str) -> None:
    logprobs, old, _, mask = step_of()
    assert gradient_of(name, logprobs, old, torch.zeros(6), mask).abs().max().item() == 0


@pytest.mark.parametrize(("name", "hostile"), list(product(LOSSES, [math.nan, math.inf, -math.inf])))
def test_s51_masked_cells_and_rows_may_hold_anything(name: str, hostile: float) -> None:
    logprobs, old, advantages, mask = step_of()
    mask[3] = False
    clean = gradient_of(name, logprobs, old, advantages, mask)
    for values in (logprobs, old):
        values[~mask] = hostile
    advantages[3] = hostile
    cells = LOSSES[name](logprobs, old, advantages, mask, SETTINGS)
    assert bool(torch.isfinite(cells.loss).all())
    assert not cells.bounded[~mask].any()
    torch.testing.assert_close(gradient_of(name, logprobs, old, advantages, mask), clean, rtol=0, atol=0)


@pytest.mark.parametrize("name", LOSSES)
def test_padding_order_and_neighbours_change_no_cell(name: str) -> None:
    logprobs, old, advantages, mask = step_of()
    whole = gradient_of(name, logprobs, old, advantages, mask)
    order = torch.tensor([4, 0, 5])

    def wide(values: Tensor, fill: float) -> Tensor:
        return torch.nn.functional.pad(values[order], (0, 0, 2, 3), value=fill)

    part = gradient_of(name, wide(logprobs, math.nan), wide(old, math.nan), advantages[order], wide(mask, False).bool())
    torch.testing.assert_close(part[:, 2:-3], whole[order], rtol=0, atol=1e-15)
    assert part[:, :2].abs().max().item() == part[:, -3:].abs().max().item() == 0


@pytest.mark.parametrize("name", ["clipped", "gspo", "cispo", "sapo"])
@pytest.mark.parametrize("advantage", [1.0, -1.0])
def test_a_ratio_that_overflows_gives_no_nan(name: str, advantage: float) -> None:
    logprobs = torch.full((1, 1, 1), 200.0, requires_grad=True)
    mask = torch.ones(1, 1, 1, dtype=torch.bool)
    cells = LOSSES[name](logprobs, torch.zeros(1, 1, 1), torch.tensor([advantage]), mask, SETTINGS)
    cells.loss.sum().backward()
    assert logprobs.grad is not None
    assert bool(torch.isfinite(logprobs.grad).all())


def test_gspos_gradient_is_that_of_the_sequence_ratio() -> None:
    """d/dlogprob of -(1/n) n min(s A, clip(s) A), s = exp(mean log-ratio): the mean over cells carries 1/n."""
    logprobs, old, advantages, mask = step_of(channels=1)
    mask[:, 0] = True
    count = mask.sum(dim=(1, 2))
    cells = logprobs.clone().requires_grad_()
    loss = gspo_loss(cells, old, advantages, mask, SETTINGS).loss
    (loss.sum(dim=(1, 2)) / count).sum().backward()
    direct = logprobs.clone().requires_grad_()
    ratio = (((direct - old) * mask).sum(dim=(1, 2)) / count).exp()
    objective = torch.minimum(ratio * advantages, ratio.clamp(0.8, 1.28) * advantages)
    (-objective).sum().backward()
    assert cells.grad is not None
    assert direct.grad is not None
    torch.testing.assert_close(cells.grad, direct.grad, rtol=0, atol=1e-14)
    assert (cells.grad.abs().sum(dim=(1, 2)) == 0).any()  # some completion is held
    torch.testing.assert_close((loss.sum(dim=(1, 2)) / count).sum(), -objective.sum())


def test_gspos_ratio_is_one_for_all_channels() -> None:
    # Ratios 2 and 8, one in each channel, and a masked cell: their geometric mean is 4, in both cells.
    logprobs = torch.tensor([[[math.log(2), math.log(8)], [math.nan, 9.0]]], dtype=torch.float64)
    mask = torch.tensor([[[True, True], [False, False]]])
    cells = gspo_loss(logprobs, torch.zeros_like(logprobs), torch.tensor([-1.0]), mask, LossSettings())
    assert cells.loss.flatten().tolist() == pytest.approx([4.0, 4.0, 0.0, 0.0])


def test_settings_without_dual_clip_leave_bad_completions_free() -> None:
    mask = torch.ones(1, 1, 1, dtype=torch.bool)
    cells = clipped_loss(torch.full((1, 1, 1), 5.0), torch.zeros(1, 1, 1), torch.tensor([-1.0]), mask, LossSettings())
    assert cells.loss.item() == pytest.approx(math.exp(5.0))


def test_sapo_ratios_beyond_any_use_have_a_closed_gate() -> None:
    mask = torch.ones(1, 1, 1, dtype=torch.bool)
    cells = sapo_loss(torch.full((1, 1, 1), 90.0), torch.zeros(1, 1, 1), torch.tensor([1.0]), mask, LossSettings())
    assert cells.loss.item() == pytest.approx(-4.0)
