import math
from typing import Any

import pytest
import torch
from torch import Tensor

from elocution.grpo.exact_kl import exact_kl
from elocution.grpo.logprobs import selected_logprobs

LEGAL = {
    "all": None,
    "contiguous": torch.arange(3, 9),
    "stop-apart": torch.tensor([1, 5, 6, 7, 8, 9, 10]),
    "scattered": torch.tensor([10, 0, 4, 7, 5]),
}


def random_layer(rows: int, width: int, ids: int, *, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Hidden states, output matrix and bias in fp64."""
    generator = torch.Generator().manual_seed(seed)
    hidden, weight, bias = (
        torch.randn(*shape, dtype=torch.float64, generator=generator) for shape in ((rows, width), (ids, width), (ids,))
    )
    return hidden, weight, bias


def plain(policy: tuple[Tensor, ...], reference: tuple[Tensor, ...], ids: Tensor, temperature: float) -> Tensor:
    p, q = (
        torch.log_softmax((hidden @ weight[ids].T + bias[ids]) / temperature, dim=-1)
        for hidden, weight, bias in (policy, reference)
    )
    return (p.exp() * (p - q)).sum(dim=-1)


def test_two_ids_worked_by_hand() -> None:
    # p = (3/4, 1/4), q = (1/2, 1/2): 3/4 ln(3/2) + 1/4 ln(1/2).
    weight = torch.tensor([[1.0], [0.0]]).double()
    p, q = (torch.tensor([[logit]], dtype=torch.float64) for logit in (math.log(3), 0.0))
    kl = exact_kl(p, weight, q, weight, temperature=1.0)
    assert kl.item() == pytest.approx(0.75 * math.log(1.5) + 0.25 * math.log(0.5), abs=1e-15)
    # The other way round, 1/2 ln(2/3) + 1/2 ln 2, is another number.
    turned = exact_kl(q, weight, p, weight, temperature=1.0)
    assert turned.item() == pytest.approx(0.5 * math.log(2 / 3) + 0.5 * math.log(2), abs=1e-15)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("tile", [(1, 1), (3, 2), (7, 3), (100, 100)])
@pytest.mark.parametrize("legal", LEGAL)
def test_tiles_equal_the_whole_with_gradients(legal: str, tile: tuple[int, int], temperature: float) -> None:
    legal_ids = LEGAL[legal]
    ids = torch.arange(11) if legal_ids is None else legal_ids
    policy, reference = random_layer(7, 5, 11), random_layer(7, 4, 11, seed=1)
    results = []
    for tiled in (False, True):
        h, w, b = (tensor.clone().requires_grad_() for tensor in policy)
        if tiled:
            kl = exact_kl(
                h, w, reference[0], reference[1], bias=b, ref_bias=reference[2],
                temperature=temperature, legal_ids=legal_ids, tile=tile,
            )  # fmt: skip
        else:
            kl = plain((h, w, b), reference, ids, temperature)
        (kl * torch.arange(1.0, 8.0)).sum().backward()
        results.append((kl, h.grad, w.grad, b.grad))
    assert float(results[0][0].detach().min()) > 1e-3
    for whole, cut in zip(*results, strict=True):
        torch.testing.assert_close(cut, whole, rtol=0, atol=1e-10)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_own_backward_passes_gradcheck(temperature: float) -> None:
    policy, reference = random_layer(5, 3, 7), random_layer(5, 3, 7, seed=1)

    def kl(hidden: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return exact_kl(
            hidden, weight, reference[0], reference[1], bias=bias, ref_bias=reference[2], temperature=temperature,
            legal_ids=torch.tensor([0, 2, 3, 4, 6]), tile=(2, 2),
        )  # fmt: skip

    assert torch.autograd.gradcheck(kl, [tensor.requires_grad_() for tensor in policy])


def test_the_mean_of_k1_over_many_draws_is_the_exact_kl() -> None:
    (hidden, weight, _), (ref_hidden, ref_weight, _) = random_layer(3, 4, 12), random_layer(3, 4, 12, seed=1)
    kl = exact_kl(hidden, weight, ref_hidden, ref_weight, temperature=0.7)
    draws = 200_000
    probabilities = torch.softmax(hidden @ weight.T / 0.7, dim=-1)
    drawn = torch.multinomial(probabilities, draws, replacement=True, generator=torch.Generator().manual_seed(2))
    for row in range(3):
        differences = [
            selected_logprobs(h[row].expand(draws, -1), w, drawn[row], temperature=0.7)[0]
            for h, w in ((hidden, weight), (ref_hidden, ref_weight))
        ]
        k1 = differences[0] - differences[1]
        error = k1.std().item() / math.sqrt(draws)
        assert error < 0.02 * kl[row].item()
        assert abs(k1.mean().item() - kl[row].item()) < 4 * error


def test_it_is_zero_with_zero_gradient_against_itself_and_positive_else() -> None:
    hidden, weight, _ = random_layer(6, 5, 9)
    h, w = hidden.float().requires_grad_(), weight.float().requires_grad_()
    same = exact_kl(h, w, h.detach().clone(), w.detach().clone(), temperature=0.7, tile=(2, 4))
    assert same.tolist() == [0.0] * 6
    same.sum().backward()
    assert h.grad is not None
    assert w.grad is not None
    assert h.grad.abs().max().item() < 1e-6
    assert w.grad.abs().max().item() < 1e-6
    other = exact_kl(h, w, torch.randn(6, 5, generator=torch.Generator().manual_seed(3)), w, temperature=0.7)
    assert other.min().item() > 0


def test_no_gradient_reaches_the_reference() -> None:
    (h, w, _), (rh, rw, _) = random_layer(4, 3, 5), random_layer(4, 3, 5, seed=1)
    for leaf in (h, w, rh, rw):
        leaf.requires_grad_()
    exact_kl(h, w, rh, rw, temperature=1.0).sum().backward()
    assert h.grad is not None
    assert w.grad is not None
    assert rh.grad is None
    assert rw.grad is None


def test_s51_ids_that_cannot_be_drawn_add_nothing_and_an_impossible_reference_is_infinitely_far() -> None:
    (h, w, b), (rh, rw, rb) = random_layer(3, 4, 6), random_layer(3, 4, 6, seed=1)
    wanted = plain((h, w[2:], b[2:]), (rh, rw[2:], rb[2:]), torch.arange(4), 1.0)
    b[:2] = rb[:2] = -torch.inf
    for leaf in (h, w):
        leaf.requires_grad_()
    kl = exact_kl(h, w, rh, rw, bias=b, ref_bias=rb, temperature=1.0, tile=(2, 2))
    torch.testing.assert_close(kl.detach(), wanted, rtol=0, atol=1e-10)
    kl.sum().backward()
    for leaf in (h, w):
        assert leaf.grad is not None
        assert torch.isfinite(leaf.grad).all()
    rb[3] = -torch.inf
    assert exact_kl(h, w, rh, rw, bias=b, ref_bias=rb, temperature=1.0, tile=(2, 2)).tolist() == [math.inf] * 3


@pytest.mark.parametrize("junk", [torch.nan, torch.inf])
@pytest.mark.parametrize("side", [0, 1])
def test_a_row_that_is_not_finite_shows_and_leaves_the_others_alone(side: int, junk: float) -> None:
    (h, w, _), (rh, rw, _) = random_layer(5, 4, 7), random_layer(5, 4, 7, seed=1)
    good = exact_kl(h, w, rh, rw, temperature=1.0, tile=(2, 3))
    (h, rh)[side][2] = junk
    found = exact_kl(h, w, rh, rw, temperature=1.0, tile=(2, 3))
    assert not found[2].isfinite()
    others = [0, 1, 3, 4]
    assert torch.equal(found[others], good[others])


@pytest.mark.parametrize("autocast", [False, True])
def test_bf16_inputs_are_compared_in_fp32(autocast: bool) -> None:
    layers = [[(0.3 * each).bfloat16() for each in random_layer(48, 64, 300, seed=seed)[:2]] for seed in (0, 1)]
    results = []
    for dtype in (torch.bfloat16, torch.float64):
        h, w, rh, rw = (each.to(dtype, copy=True) for layer in layers for each in layer)
        h.requires_grad_()
        w.requires_grad_()
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            kl = exact_kl(h, w, rh, rw, temperature=0.7, tile=(16, 70))
        kl.sum().backward()
        results.append((kl.detach(), h.grad, w.grad))
    found, exact = results
    assert found[0].dtype is torch.float32
    assert (found[0] - exact[0]).abs().max().item() < 1e-5
    for rounded, wanted in zip(found[1:], exact[1:], strict=True):
        assert rounded is not None
        assert wanted is not None
        assert rounded.dtype is torch.bfloat16
        torch.testing.assert_close(rounded.double(), wanted, rtol=2**-8, atol=1e-5)


@pytest.mark.parametrize("reduce", [Tensor.sum, lambda x: x.square().sum(), lambda x: (x * torch.arange(4)).sum()])
def test_second_derivatives_are_refused_even_where_the_first_are_constants(reduce: Any) -> None:
    (h, w, _), (rh, rw, _) = random_layer(4, 3, 5), random_layer(4, 3, 5, seed=1)
    loss = reduce(exact_kl(h.requires_grad_(), w.requires_grad_(), rh, rw, temperature=1.0))
    for leaf in (h, w):
        with pytest.raises(RuntimeError, match="exact_kl has no second derivative"):
            torch.autograd.grad(loss, leaf, create_graph=True)


def test_no_row_gives_no_kl() -> None:
    (h, w, _), (rh, rw, _) = random_layer(2, 3, 5), random_layer(2, 3, 5, seed=1)
    assert exact_kl(h[:0], w, rh[:0], rw, temperature=1.0).shape == (0,)


def test_what_cannot_be_compared_is_refused() -> None:
    (h, w, b), (rh, rw, _) = random_layer(4, 3, 5), random_layer(4, 3, 5, seed=1)
    for wrong, message in (
        ({"ref_hidden": rh[:3]}, "expected 4 hidden states"),
        ({"ref_weight": rw[:, :2]}, "hidden states"),
        ({"ref_weight": rw[:4]}, "5 and 4 rows; legal_ids must say"),
        ({"ref_weight": rw[:4], "legal_ids": torch.arange(5)}, "at least one of the 4 rows"),
        ({"bias": b[:4]}, "hidden states"),
        ({"ref_bias": b[:4]}, "hidden states"),
        ({"temperature": 0.0}, "must be positive"),
    ):
        arguments: dict[str, Any] = {
            "hidden": h, "weight": w, "ref_hidden": rh, "ref_weight": rw, "temperature": 1.0, **wrong
        }  # fmt: skip
        with pytest.raises(ValueError, match=message):
            exact_kl(**arguments)
    longer = exact_kl(h, w, rh, torch.cat([rw, rw]), temperature=1.0, legal_ids=torch.arange(5))
    torch.testing.assert_close(longer, exact_kl(h, w, rh, rw, temperature=1.0))
