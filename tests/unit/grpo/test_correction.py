import math

import pytest
import torch

from elocution.grpo.correction import Correction, bounded_weights, importance_weights
from elocution.grpo.schedules import Schedule, scheduled

# Ratios 2, 1/2, and 3 in the first completion, whose product is 3; 1/4 in the second; its second cell is masked.
RATIOS = torch.tensor([[2.0, 0.5, 3.0], [0.25, 1.0, 1.0]], dtype=torch.float64)[..., None]
MASK = torch.tensor([[1, 1, 1], [1, 0, 0]], dtype=torch.bool)[..., None]


@pytest.mark.parametrize(
    ("correction", "wanted"),
    [
        ("token_truncate", [[2.0, 0.5, 2.5], [0.25, 0, 0]]),
        ("token_mask", [[2.0, 0.5, 0.0], [0.0, 0, 0]]),
        ("sequence_truncate", [[2.5, 2.5, 2.5], [0.25, 0, 0]]),
        ("sequence_mask", [[0.0, 0.0, 0.0], [0.0, 0, 0]]),
    ],
)
def test_corrections_worked_by_hand(correction: Correction, wanted: list[list[float]]) -> None:
    old = torch.where(MASK, RATIOS.log(), torch.full_like(RATIOS, math.nan)).requires_grad_()
    weights = importance_weights(old, torch.zeros_like(RATIOS), MASK, correction=correction, low=0.3, high=2.5)
    assert weights[..., 0].tolist() == [pytest.approx(row) for row in wanted]
    assert not weights.requires_grad


@pytest.mark.parametrize(
    ("correction", "wanted"),
    [
        ("token_truncate", [[0, 0, 1], [0, 0, 0]]),
        ("token_mask", [[0, 0, 1], [1, 0, 0]]),
        ("sequence_truncate", [[1, 1, 1], [0, 0, 0]]),
        ("sequence_mask", [[1, 1, 1], [1, 0, 0]]),
    ],
)
def test_bounded_weights_worked_by_hand(correction: Correction, wanted: list[list[int]]) -> None:
    old = torch.where(MASK, RATIOS.log(), torch.full_like(RATIOS, math.nan))
    bounded = bounded_weights(old, torch.zeros_like(RATIOS), MASK, correction=correction, low=0.3, high=2.5)
    assert bounded[..., 0].int().tolist() == wanted


def test_equal_policies_need_no_correction() -> None:
    for correction in ("token_truncate", "token_mask", "sequence_truncate", "sequence_mask"):
        weights = importance_weights(RATIOS, RATIOS, MASK, correction=correction, low=0.5, high=2.0)  # type: ignore[arg-type]
        assert torch.equal(weights, MASK.double())


def test_an_unknown_correction_is_refused() -> None:
    with pytest.raises(ValueError, match="must be one of"):
        importance_weights(RATIOS, RATIOS, MASK, correction="token_cap", low=0.5, high=2.0)  # type: ignore[arg-type]


def test_bounds_in_the_wrong_order_are_refused() -> None:
    with pytest.raises(ValueError, match="need 0 <= low < high"):
        importance_weights(RATIOS, RATIOS, MASK, correction="token_mask", low=2.0, high=1.0)


@pytest.mark.parametrize(
    ("schedule", "step", "wanted"),
    [("linear", 1, 1.0), ("linear", 3, 2.0), ("linear", 5, 3.0), ("cosine", 2, 2 - math.sqrt(0.5)), ("cosine", 5, 3.0)],
)
def test_schedules_worked_by_hand(schedule: Schedule, step: int, wanted: float) -> None:
    assert scheduled(1.0, 3.0, step, 5, schedule) == pytest.approx(wanted)


def test_a_run_of_one_step_stays_at_the_start_and_others_must_be_inside_it() -> None:
    assert scheduled(1.0, 3.0, 1, 1, "linear") == 1.0
    with pytest.raises(ValueError, match="not one of 1 to 5"):
        scheduled(1.0, 3.0, 0, 5, "linear")


def test_a_constant_schedule_stays_at_its_start() -> None:
    assert [scheduled(0.2, 0.9, step, 5, "constant") for step in range(1, 6)] == [0.2] * 5
