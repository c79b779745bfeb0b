"""When memory runs out: smaller micro-batches once, then the arithmetic of why it cannot fit."""

import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

from elocution.errors import MemoryExhausted
from elocution.train.batch import LearnerBatch

__all__ = ["TokenBudget"]

Result = TypeVar("Result")

logger = logging.getLogger(__name__)


class TokenBudget:
    """How many positions a micro-batch may compute. Halved for good the first time that memory runs out."""

    def __init__(self, positions: int) -> None:
        self.positions = positions
        self._configured = positions

    def run(
        self,
        cut: Callable[[int], Sequence[LearnerBatch]],
        update: Callable[[Sequence[LearnerBatch]], Result],
    ) -> Result:
        """`update(cut(positions))`, again with half of them if memory ran out.

        `update` must leave weights and optimiser as they were when it fails for want of memory.

        Raises: MemoryExhausted if the half is too much as well, or was tried before.
        """
        while True:
            batches = cut(self.positions)
            try:
                return update(batches)
            except (RuntimeError, MemoryError) as error:  # torch.OutOfMemoryError is a RuntimeError
                if not _is_out_of_memory(error):
                    raise
                if self.positions < self._configured:
                    raise MemoryExhausted(_arithmetic(batches, self.positions, self._configured)) from error
            self.positions = max(1, self.positions // 2)
            logger.warning(
                "memory ran out with micro-batches of %d positions; going on with %d", self._configured, self.positions
            )


def _is_out_of_memory(error: BaseException) -> bool:
    # The CPU allocator of torch has no error class of its own.
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or "can't allocate memory" in str(error)


def _arithmetic(batches: Sequence[LearnerBatch], positions: int, configured: int) -> str:
    largest = max(batches, key=lambda batch: batch.num_positions)
    rows, prompts = len(largest.advantages), len(largest.policy.prompt_ids)
    return (
        f"memory ran out with micro-batches of {configured} positions, and with {positions} too. The largest holds "
        f"{largest.num_positions} positions: {prompts} prompts of {int(largest.policy.prompt_mask.sum())} ids in all and "
        f"{rows} completions of {largest.num_tokens} cells. A micro-batch is never less than one group: lower "
        "rollout.group_size or rollout.max_codes_per_char, set train.activation_checkpointing = true, or train LoRA"
    )
