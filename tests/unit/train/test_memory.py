from collections.abc import Sequence

import pytest
import torch

from elocution.errors import MemoryExhausted
from elocution.policies.base import PolicyBatch
from elocution.train.batch import LearnerBatch
from elocution.train.memory import TokenBudget


def batch_of(positions: int) -> LearnerBatch:
    """One prompt of two ids and one completion that fills the rest."""
    length = positions - 1
    mask = torch.ones(1, length, 1, dtype=torch.bool)
    policy = PolicyBatch(torch.ones(1, 2).long(), torch.ones(1, 2).long(), torch.zeros(1).long(), mask.long(), mask)
    return LearnerBatch(
        policy, torch.ones(1), torch.ones(1, dtype=torch.bool), torch.zeros(1, length, 1), torch.zeros(1, length, 1)
    )


class Limited:
    """An update that needs more memory than there is above `limit` positions."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.tried: list[int] = []

    def __call__(self, batches: Sequence[LearnerBatch]) -> str:
        (batch,) = batches
        self.tried.append(batch.num_positions)
        if batch.num_positions > self.limit:
            # As torch reports it: a request that no machine can meet.
            torch.empty(1 << 60, dtype=torch.uint8)
        return "updated"


def test_memory_that_runs_out_halves_the_budget_once_and_for_good() -> None:
    budget, update = TokenBudget(100), Limited(60)
    assert budget.run(lambda positions: [batch_of(positions)], update) == "updated"
    assert budget.run(lambda positions: [batch_of(positions)], update) == "updated"
    assert update.tried == [100, 50, 50]


def test_memory_that_runs_out_again_fails_with_the_arithmetic() -> None:
    budget, update = TokenBudget(100), Limited(10)
    with pytest.raises(MemoryExhausted, match=r"50 positions: 1 prompts of 2 ids in all and 1 completions of 49 cells"):
        budget.run(lambda positions: [batch_of(positions)], update)
    assert update.tried == [100, 50]


def test_other_failures_are_not_taken_for_want_of_memory() -> None:
    def broken(batches: Sequence[LearnerBatch]) -> None:
        raise RuntimeError("shapes disagree")

    budget = TokenBudget(100)
    with pytest.raises(RuntimeError, match="shapes disagree"):
        budget.run(lambda positions: [batch_of(positions)], broken)
    assert budget.positions == 100
