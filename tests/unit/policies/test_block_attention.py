"""Attention in blocks against the softmax of a whole score matrix, in fp64."""

import pytest
import torch
from torch import Tensor

from elocution.policies.block_attention import Segment, block_attention

# Two prompts of several blocks and of one position; completions shorter than a block, longer, and empty; one does not
# follow the order of the prompts.
SEGMENTS = (
    Segment(slice(0, 150), slice(0, 0)),
    Segment(slice(150, 151), slice(0, 0)),
    Segment(slice(151, 221), slice(150, 151)),
    Segment(slice(221, 350), slice(0, 150)),
    Segment(slice(350, 350), slice(0, 150)),
    Segment(slice(350, 355), slice(0, 150)),
)
LENGTH = 355


def visible() -> Tensor:
    """Shapes: [N, N]."""
    mask = torch.zeros(LENGTH, LENGTH, dtype=torch.bool)
    for place, prefix in SEGMENTS:
        for position in range(place.start, place.stop):
            mask[position, prefix] = True
            mask[position, place.start : position + 1] = True
    return mask


def plain(query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
    key, value = (heads.repeat_interleave(len(query) // len(heads), dim=0) for heads in (key, value))
    scores = (query @ key.transpose(1, 2) * scale).masked_fill(~visible(), -torch.inf)
    return scores.softmax(dim=-1) @ value


def random_heads(kv_heads: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    query, key, value = (
        torch.randn(LENGTH, heads, 8, dtype=torch.float64, generator=generator).transpose(0, 1).requires_grad_()
        for heads in (6, kv_heads, kv_heads)
    )
    return query, key, value


@pytest.mark.parametrize("scale", [None, 3.0])
@pytest.mark.parametrize("kv_heads", [6, 2, 1])
def test_values_and_gradients_are_those_of_the_whole_matrix(kv_heads: int, scale: float | None) -> None:
    inputs = random_heads(kv_heads)
    ours = block_attention(*inputs, SEGMENTS, scale=scale)
    wanted = plain(*inputs, 8**-0.5 if scale is None else scale)
    torch.testing.assert_close(ours, wanted, rtol=0, atol=1e-13)
    weights = torch.randn(wanted.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    mine, others = (torch.autograd.grad(out, inputs, weights) for out in (ours, wanted))
    for one, other in zip(mine, others, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def test_scores_too_large_for_exp_stay_finite() -> None:
    query, key, value = random_heads(2)
    ours, wanted = block_attention(query, key, value, SEGMENTS, scale=1e4), plain(query, key, value, 1e4)
    torch.testing.assert_close(ours, wanted, rtol=0, atol=1e-10)


def test_a_second_derivative_is_refused() -> None:
    inputs = random_heads(2)
    with pytest.raises(RuntimeError, match="block_attention has no second derivative"):
        torch.autograd.grad(block_attention(*inputs, SEGMENTS).sum(), inputs, create_graph=True)
