"""Weights moved for a while, so that a sync can be tried out before training on weights that nothing else could give."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import nn

__all__ = ["SCALES", "perturbed"]

# Tried in turn until the probes tell the moved weights from the others.
SCALES = tuple(0.02 * 2**power for power in range(8))
_SMALLEST = 1.0  # root mean square that a parameter counts as having at least; an adapter's B is 0 before training


@contextmanager
def perturbed(parameters: Mapping[str, nn.Parameter], *, scale: float, seed: int) -> Iterator[None]:
    """Within, each parameter has normal noise added; after it, its value is what it was, to the bit.

    The noise has `scale` times the parameter's own root mean square, or `scale` where all of it is 0. It holds a second
    copy of the parameters for that time, and follows from `seed` and the order of the parameters.
    """
    kept = [parameter.detach().clone() for parameter in parameters.values()]
    try:
        with torch.no_grad():
            for index, parameter in enumerate(parameters.values()):
                generator = torch.Generator().manual_seed(seed * 1_000_003 + index)
                size = parameter.pow(2).mean().sqrt().item() or _SMALLEST
                noise = torch.randn(parameter.shape, generator=generator) * (scale * size)
                parameter.add_(noise.to(parameter))
        yield
    finally:
        with torch.no_grad():
            for parameter, value in zip(parameters.values(), kept, strict=True):
                parameter.copy_(value)
