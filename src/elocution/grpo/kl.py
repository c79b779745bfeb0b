"""Estimates of KL(policy || reference) by cell, from ids that the policy drew. Pure functions; nats."""

from collections.abc import Callable

import torch
from torch import Tensor

from elocution.grpo.masking import masked

__all__ = ["KL_ESTIMATES", "kl_k1", "kl_k2", "kl_k3"]


def kl_k1(logprobs: Tensor, ref_logprobs: Tensor, mask: Tensor) -> Tensor:
    """`policy - reference`: right on average, may be negative. As a loss its gradient is 0 on average: it teaches nothing.

    Shapes: [B, T, C] each; masked cells may hold anything and give 0.
    Source: Schulman, "Approximating KL divergence" (2020), estimator k1.
    """
    return masked(logprobs, mask) - masked(ref_logprobs, mask)


def kl_k2(logprobs: Tensor, ref_logprobs: Tensor, mask: Tensor) -> Tensor:
    """`(policy - reference)^2 / 2`: biased as a value; on policy its gradient is that of the KL on average.

    Shapes and source as `kl_k1`, estimator k2.
    """
    return kl_k1(logprobs, ref_logprobs, mask).square() / 2


def kl_k3(logprobs: Tensor, ref_logprobs: Tensor, mask: Tensor) -> Tensor:
    """`exp(d) - d - 1`, d = reference - policy: right on average, never negative but for rounding.

    On policy its gradient is, on average, that of KL(reference || policy) and not of KL(policy || reference).
    Shapes and source as `kl_k1`, estimator k3; GRPO (arXiv:2402.03300) eq. 4.
    """
    difference = -kl_k1(logprobs, ref_logprobs, mask)
    return torch.expm1(difference) - difference


KL_ESTIMATES: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {"k1": kl_k1, "k2": kl_k2, "k3": kl_k3}
