"""What may be drawn at the next position of each row, and the draw itself."""

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Choices"]


@dataclass(frozen=True)
class Choices:
    """Logits of the next position, in groups of channels that share a table of ids; the groups are in the channels' order.

    Shapes: each group is (logits [B, c, K], ids [K]), the c of all groups adding up to C; ids ascend. An id that may not be
    drawn now has the logit -inf. A cell with one finite logit is forced: it draws that id with log-prob 0.
    """

    groups: tuple[tuple[Tensor, Tensor], ...]

    @property
    def device(self) -> torch.device:
        return self.groups[0][0].device

    def draw(self, uniforms: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
        """Ids drawn by the inverse of the cumulative distribution, and their log-probs, nats. Shapes: [B, C] -> [B, C] each.

        Raises: FloatingPointError if a probability is not finite.
        """
        drawn, logprobs = [], []
        start = 0
        for logits, ids in self.groups:
            stop = start + logits.shape[1]
            place, logprob = _draw(logits, uniforms[:, start:stop], temperature)
            drawn.append(ids[place])
            logprobs.append(logprob)
            start = stop
        return torch.cat(drawn, dim=1), torch.cat(logprobs, dim=1)

    def best(self) -> Tensor:
        """The most probable ids. Shapes: [B, C]."""
        return torch.cat([ids[logits.argmax(dim=-1)] for logits, ids in self.groups], dim=1)

    def gaps(self, chosen: Tensor) -> Tensor:
        """By how much the ids `chosen` are less probable than the best, nats at temperature 1. Shapes: [B, C] -> [B, C]."""
        found = []
        start = 0
        for logits, ids in self.groups:
            stop = start + logits.shape[1]
            place = torch.searchsorted(ids, chosen[:, start:stop].contiguous())
            found.append(logits.amax(dim=-1) - logits.gather(-1, place[..., None])[..., 0])
            start = stop
        return torch.cat(found, dim=1)


def _draw(logits: Tensor, uniforms: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Places drawn from softmax(logits / temperature), and their log-probs. Shapes: [B, c, K], [B, c] -> [B, c] each."""
    probabilities = torch.softmax(logits.float() / temperature, dim=-1)
    cumulative = probabilities.cumsum(dim=-1)
    total = cumulative[..., -1]
    if not bool(torch.isfinite(total).all()):
        raise FloatingPointError("a probability is not finite")
    # Rounding can leave the total a little off 1; an id of probability 0 is never drawn.
    choice = torch.searchsorted(cumulative, (uniforms * total)[..., None], right=True)
    choice = choice.clamp_max(logits.shape[-1] - 1)
    return choice[..., 0], probabilities.gather(-1, choice)[..., 0].log()
