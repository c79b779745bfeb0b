"""What the probabilities of a batch's cells are made from, so that one forward pass serves log-probs and exact KL."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from elocution.grpo.exact_kl import exact_kl
from elocution.grpo.logprobs import selected_logprobs

__all__ = ["CellStates", "GroupedStates", "States"]


class States(Protocol):
    """What log-probs and exact KL of a batch's cells are made from. Valid until the weights change."""

    def logprobs(self, *, temperature: float, entropy_grad: bool = False) -> tuple[Tensor, Tensor]:
        """As `Policy.logprobs`."""

    def exact_kl(self, reference: Any, *, temperature: float) -> Tensor:
        """KL(self || reference) of each cell over its legal ids, nats, 0 outside the mask; `reference` is of the same kind.

        Raises: ValueError if the reference has other cells or other legal ids.
        """


@dataclass(frozen=True)
class CellStates:
    """Final hidden states of cells that choose among the same ids, with the output layer that turns them into logits.

    Shapes: `hidden` [M, D], of the unmasked cells in order; `weight` [V, D]; `legal_ids` [K], the rows of it that may be
    drawn, ascending, all if None; `ids` [M], legal ones; `mask` [B, T, C], M of it true; `bias` [V], none if None.
    Valid until the weights change.
    """

    hidden: Tensor
    weight: Tensor
    legal_ids: Tensor | None
    ids: Tensor
    mask: Tensor
    bias: Tensor | None = None

    def logprobs(self, *, temperature: float, entropy_grad: bool = False) -> tuple[Tensor, Tensor]:
        """Log-probs and entropies, nats, 0 outside the mask; as `Policy.logprobs`. Shapes: [B, T, C] each."""
        legal = self.legal_ids
        targets = self.ids if legal is None else torch.searchsorted(legal.to(self.ids.device), self.ids)
        logprobs, entropy = selected_logprobs(
            self.hidden,
            self.weight,
            targets,
            temperature=temperature,
            legal_ids=legal,
            bias=self.bias,
            entropy_grad=entropy_grad,
        )
        return self._spread(logprobs), self._spread(entropy)

    def exact_kl(self, reference: "CellStates", *, temperature: float) -> Tensor:
        """KL(self || reference) of each cell over the legal ids, nats, 0 outside the mask. Shapes: [B, T, C].

        Gradients flow to this side alone.

        Raises: ValueError if the reference has other cells or other legal ids.
        """
        same_ids = (self.legal_ids is None) == (reference.legal_ids is None) and (
            self.legal_ids is None or reference.legal_ids is None or torch.equal(self.legal_ids, reference.legal_ids)
        )
        if not same_ids or not torch.equal(self.mask, reference.mask):
            raise ValueError("KL needs a reference with the same cells and the same legal ids")
        return self._spread(
            exact_kl(
                self.hidden,
                self.weight,
                reference.hidden,
                reference.weight,
                temperature=temperature,
                legal_ids=self.legal_ids,
                bias=self.bias,
                ref_bias=reference.bias,
            )
        )

    def _spread(self, values: Tensor) -> Tensor:
        """Shapes: [M] -> [B, T, C]."""
        return torch.zeros(self.mask.shape, dtype=values.dtype, device=values.device).masked_scatter(self.mask, values)


@dataclass(frozen=True)
class GroupedStates:
    """Cells of several kinds: `parts` of the same [B, T, C], no cell in two of them. A cell in none of them has log-prob 0."""

    parts: Sequence[CellStates]

    def logprobs(self, *, temperature: float, entropy_grad: bool = False) -> tuple[Tensor, Tensor]:
        """As `Policy.logprobs`."""
        found = [part.logprobs(temperature=temperature, entropy_grad=entropy_grad) for part in self.parts]
        return _sum(logprobs for logprobs, _ in found), _sum(entropy for _, entropy in found)

    def exact_kl(self, reference: "GroupedStates", *, temperature: float) -> Tensor:
        """As `CellStates.exact_kl`."""
        if len(self.parts) != len(reference.parts):
            raise ValueError("KL needs a reference with the same cells and the same legal ids")
        return _sum(
            own.exact_kl(other, temperature=temperature) for own, other in zip(self.parts, reference.parts, strict=True)
        )


def _sum(values: Iterable[Tensor]) -> Tensor:
    first, *others = values
    for other in others:
        first = first + other
    return first
