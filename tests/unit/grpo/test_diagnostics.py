import math

import pytest
import torch

from elocution.grpo.diagnostics import max_ratio_deviation, non_finite_cells

OLD = torch.zeros(1, 3, 1, dtype=torch.float64)
# Ratios 2, 1/4 and one that is masked.
NEW = torch.tensor([math.log(2), math.log(1 / 4), math.nan], dtype=torch.float64).reshape(1, 3, 1)
MASK = torch.tensor([True, True, False]).reshape(1, 3, 1)


def test_the_largest_deviation_of_a_ratio_worked_by_hand() -> None:
    # |2 - 1| = 1 and |1/4 - 1| = 3/4.
    assert max_ratio_deviation(NEW, OLD, MASK).item() == pytest.approx(1.0)
    assert max_ratio_deviation(OLD, OLD, MASK).item() == 0


def test_s44_a_temperature_left_out_on_one_side_shows_as_a_ratio_far_from_one() -> None:
    # Logits 0 and 2: drawn at temperature 0.5, p = 1 / (1 + e^-4); scored at 1, p = 1 / (1 + e^-2).
    drawn, scored = (torch.tensor([[[-math.log1p(math.exp(-x))]]], dtype=torch.float64) for x in (4.0, 2.0))
    mask = torch.ones(1, 1, 1, dtype=torch.bool)
    assert max_ratio_deviation(scored, drawn, mask).item() == pytest.approx(1 - (1 + math.e**-4) / (1 + math.e**-2))


def test_no_cell_means_no_deviation() -> None:
    nothing = torch.zeros_like(MASK)
    assert max_ratio_deviation(NEW, OLD, nothing).item() == 0
    assert non_finite_cells(NEW, nothing).shape == (0, 3)


def test_maxima_combine_over_micro_batches() -> None:
    generator = torch.Generator().manual_seed(0)
    new, old = torch.randn(2, 8, 4, 2, dtype=torch.float64, generator=generator)
    mask = torch.rand(8, 4, 2, generator=generator) < 0.5
    parts = [slice(0, 3), slice(3, 8)]
    largest = max(max_ratio_deviation(new[p], old[p], mask[p]).item() for p in parts)
    assert largest == max_ratio_deviation(new, old, mask).item()


def test_diagnostics_carry_no_gradient() -> None:
    new = NEW.clone().requires_grad_()
    assert not max_ratio_deviation(new, OLD, MASK).requires_grad


def test_s51_non_finite_cells_are_named_and_masked_ones_are_not() -> None:
    values = torch.zeros(2, 3, 2)
    values[0, 1, 1], values[1, 2, 0], values[1, 0, 0] = math.nan, -math.inf, math.inf
    mask = torch.ones_like(values, dtype=torch.bool)
    mask[1, 0, 0] = False
    assert non_finite_cells(values, mask).tolist() == [[0, 1, 1], [1, 2, 0]]
    assert math.isnan(max_ratio_deviation(values, torch.zeros_like(values), mask).item())
