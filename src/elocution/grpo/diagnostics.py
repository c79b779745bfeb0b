"""Numbers that say whether a step is healthy; none enters the gradient. Pure functions of tensors.

A sum over cells adds up over micro-batches; divide it by the number of cells of the step to have a mean.
"""

import torch
from torch import Tensor

__all__ = ["logprob_gaps", "max_ratio_deviation", "non_finite_cells"]


def logprob_gaps(logprobs: Tensor, other_logprobs: Tensor, completion_mask: Tensor) -> Tensor:
    """`|logprobs - other_logprobs|` of the unmasked cells, nats. Shapes: [B, T, C] each; returns [N]."""
    return _log_ratio(logprobs, other_logprobs, completion_mask).abs()


def max_ratio_deviation(logprobs: Tensor, old_logprobs: Tensor, completion_mask: Tensor) -> Tensor:
    """Largest `|exp(logprobs - old_logprobs) - 1|` over the unmasked cells; 0 if there are none.

    Before the first update of a step it is 0 but for rounding, or the engine samples from another policy.
    NaN if an unmasked cell is NaN. Shapes: [B, T, C] each; returns a scalar.
    """
    deviations = torch.expm1(_log_ratio(logprobs, old_logprobs, completion_mask)).abs()
    return deviations.amax() if deviations.numel() else deviations.new_zeros(())


def non_finite_cells(values: Tensor, completion_mask: Tensor) -> Tensor:
    """Indices (b, t, c) of the unmasked cells that hold NaN or infinity, in order. Shapes: [B, T, C] -> [M, 3].

    They let an error name the id behind a loss that is not finite.
    """
    return torch.nonzero(completion_mask & ~torch.isfinite(values))


def _log_ratio(logprobs: Tensor, old_logprobs: Tensor, mask: Tensor) -> Tensor:
    return logprobs.detach()[mask] - old_logprobs[mask]
