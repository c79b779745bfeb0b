import math
import weakref
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from elocution.grpo.logprobs import selected_logprobs


def random_inputs(rows: int, width: int, legal: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Hidden states, weight, bias and targets in fp64."""
    generator = torch.Generator().manual_seed(0)
    hidden, weight, bias = (
        torch.randn(*shape, dtype=torch.float64, generator=generator)
        for shape in ((rows, width), (legal, width), (legal,))
    )
    return hidden, weight, bias, torch.randint(legal, (rows,), generator=generator)


def brute_force(hidden: Tensor, weight: Tensor, target: Tensor, temperature: float) -> Tensor:
    return torch.log_softmax(hidden.double() @ weight.double().T / temperature, dim=-1)[
        torch.arange(len(target)), target
    ]


def test_two_ids_worked_by_hand() -> None:
    # Logits ln 3 and 0 -> probabilities 3/4 and 1/4; entropy 3/4 ln(4/3) + 1/4 ln 4.
    hidden, weight = torch.tensor([[math.log(3)]] * 2, dtype=torch.float64), torch.tensor([[1.0], [0.0]]).double()
    logprobs, entropy = selected_logprobs(hidden, weight, torch.tensor([0, 1]), temperature=1.0)
    assert logprobs.exp().tolist() == pytest.approx([0.75, 0.25])
    assert entropy.tolist() == pytest.approx([0.75 * math.log(4 / 3) + 0.25 * math.log(4)] * 2)


def test_s44_temperature_is_in_the_logprobs_and_in_the_entropy() -> None:
    hidden, weight = torch.tensor([[1.0]]), torch.tensor([[0.0], [1.0]])
    # Logits 0 and 1 at temperature 1/2 are 0 and 2: p = 1 / (1 + e^-2).
    logprobs, cold = selected_logprobs(hidden, weight, torch.tensor([1]), temperature=0.5)
    assert logprobs.exp().item() == pytest.approx(1 / (1 + torch.e**-2))
    _, hot = selected_logprobs(hidden, weight, torch.tensor([1]), temperature=1e6)
    assert cold.item() < hot.item() == pytest.approx(math.log(2))


def plain(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, ids: Tensor, temperature: float
) -> tuple[Tensor, Tensor]:
    logits = hidden @ weight[ids].T + (0 if bias is None else bias[ids])
    full = torch.log_softmax(logits / temperature, dim=-1)
    return full.gather(1, target[:, None])[:, 0], -(full.exp() * full).sum(dim=-1)


LEGAL = {
    "all": None,
    "contiguous": torch.arange(3, 9),
    "stop-apart": torch.tensor([1, 5, 6, 7, 8, 9, 10]),
    "scattered": torch.tensor([10, 0, 4, 7, 5]),
}


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("tile", [(1, 1), (3, 2), (7, 3), (2, 100), (100, 100)])
@pytest.mark.parametrize("legal", LEGAL)
def test_tiles_equal_the_whole_with_gradients(
    legal: str, tile: tuple[int, int], with_bias: bool, temperature: float
) -> None:
    hidden, weight, bias, _ = random_inputs(7, 5, 11)
    legal_ids = LEGAL[legal]
    ids = torch.arange(11) if legal_ids is None else legal_ids
    target = torch.randint(len(ids), (7,), generator=torch.Generator().manual_seed(1))
    results = []
    for tiled in (False, True):
        h, w, b = (tensor.clone().requires_grad_() for tensor in (hidden, weight, bias))
        b_or_none = b if with_bias else None
        if tiled:
            logprobs, entropy = selected_logprobs(
                h, w, target, temperature=temperature, legal_ids=legal_ids, bias=b_or_none, entropy_grad=True, tile=tile
            )
        else:
            logprobs, entropy = plain(h, w, b_or_none, target, ids, temperature)
        (logprobs * torch.arange(1.0, 8.0) + 0.3 * entropy * torch.arange(7.0, 0.0, -1.0)).sum().backward()
        results.append((logprobs, entropy, h.grad, w.grad) + ((b.grad,) if with_bias else ()))
    for whole, cut in zip(*results, strict=True):
        torch.testing.assert_close(cut, whole, rtol=0, atol=1e-10)


def test_illegal_rows_are_neither_read_nor_moved() -> None:
    hidden, weight, _, target = random_inputs(6, 4, 5)
    matrix = torch.full((9, 4), torch.nan, dtype=torch.float64)
    ids = torch.tensor([1, 4, 5, 6, 8])
    matrix[ids] = weight
    matrix.requires_grad_()
    found = selected_logprobs(hidden, matrix, target, temperature=1.0, legal_ids=ids, tile=(4, 2))[0]
    torch.testing.assert_close(found, selected_logprobs(hidden, weight, target, temperature=1.0)[0])
    found.sum().backward()
    assert matrix.grad is not None
    illegal = [0, 2, 3, 7]
    assert matrix.grad[illegal].abs().max().item() == 0
    assert matrix.grad[ids].abs().min().item() > 0


def test_gradient_equals_finite_differences() -> None:
    hidden, weight, bias, target = random_inputs(4, 3, 5)
    assert torch.autograd.gradcheck(
        lambda h, w, b: selected_logprobs(h, w, target, temperature=0.6, tile=(3, 2), bias=b)[0],
        [tensor.requires_grad_() for tensor in (hidden, weight, bias)],
    )


def test_the_order_of_the_legal_ids_does_not_matter() -> None:
    hidden, weight, _, target = random_inputs(6, 4, 9)
    order = torch.randperm(9, generator=torch.Generator().manual_seed(1))
    plain = selected_logprobs(hidden, weight, target, temperature=1.0, tile=(4, 3))
    permuted = selected_logprobs(hidden, weight[order], order.argsort()[target], temperature=1.0, tile=(4, 3))
    for one, other in zip(plain, permuted, strict=True):
        assert torch.allclose(one, other)


def test_entropy_of_a_certain_choice_is_zero_not_nan() -> None:
    hidden, weight = torch.tensor([[1.0]]), torch.tensor([[0.0], [-torch.inf]])
    _, entropy = selected_logprobs(hidden, weight, torch.tensor([0]), temperature=1.0)
    assert entropy.item() == 0


def test_s51_an_id_of_probability_zero_leaves_gradients_finite() -> None:
    hidden, weight, bias, _ = random_inputs(3, 4, 5)
    hidden.requires_grad_()
    weight.requires_grad_()
    bias[2] = -torch.inf
    logprobs, entropy = selected_logprobs(
        hidden, weight, torch.tensor([0, 1, 3]), temperature=1.0, tile=(2, 2), bias=bias
    )
    logprobs.sum().backward()
    assert torch.isfinite(entropy).all()
    for leaf in (hidden, weight):
        assert leaf.grad is not None
        assert torch.isfinite(leaf.grad).all()
    assert weight.grad is not None
    assert weight.grad[2].abs().max().item() == 0


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_s51_logits_and_softmax_are_fp32_whatever_the_inputs_and_autocast(dtype: torch.dtype, autocast: bool) -> None:
    hidden, weight, _, target = random_inputs(32, 64, 50)
    h, w = hidden.to(dtype).requires_grad_(), weight.to(dtype).requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        logprobs, entropy = selected_logprobs(h, w, target, temperature=1.0)
    assert logprobs.dtype is entropy.dtype is torch.float32
    # Logits have a deviation of 8 here, which bf16 would round by up to 0.06.
    assert (logprobs - brute_force(h, w, target, 1.0)).abs().max().item() < 1e-4
    logprobs.sum().backward()
    assert h.grad is not None
    assert w.grad is not None
    assert h.grad.dtype is w.grad.dtype is dtype


class LiveMemory(TorchDispatchMode):
    """Counts the elements of tensors that operations made and that still live; `peak` is the most at once."""

    def __init__(self) -> None:
        super().__init__()
        self.live = self.peak = 0
        self._seen: set[int] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(tensor, Tensor) and tensor.untyped_storage().data_ptr() not in self._seen:
                storage = tensor.untyped_storage()
                self._add(storage.data_ptr(), storage.nbytes() // tensor.element_size())
                weakref.finalize(tensor, self._drop, storage.data_ptr(), storage.nbytes() // tensor.element_size())
        return result

    def _add(self, pointer: int, elements: int) -> None:
        self._seen.add(pointer)
        self.live += elements
        self.peak = max(self.peak, self.live)

    def _drop(self, pointer: int, elements: int) -> None:
        self._seen.discard(pointer)
        self.live -= elements


def test_s86_memory_is_bounded_by_the_tile_and_neither_by_the_batch_nor_by_the_ids() -> None:
    rows, legal = 512, 4000
    hidden, weight, _, target = random_inputs(rows, 4, legal)
    hidden.requires_grad_()
    weight.requires_grad_()

    def peak(tile: tuple[int, int]) -> int:
        hidden.grad = weight.grad = None
        with LiveMemory() as memory:
            selected_logprobs(hidden, weight, target, temperature=1.0, tile=tile)[0].sum().backward()
        return memory.peak

    # A tile has 64 000 logits and a few copies of them stand at once; 64 whole rows would be 256 000.
    small = peak((64, 1000))
    assert small < 5 * 64 * 1000
    assert 2 * small < min(peak((64, legal)), peak((rows, 1000)))


def test_no_row_gives_no_logprob() -> None:
    hidden, weight, _, target = random_inputs(3, 4, 5)
    logprobs, entropy = selected_logprobs(hidden[:0], weight, target[:0], temperature=1.0, tile=(4, 3))
    assert logprobs.shape == entropy.shape == (0,)


def test_wrong_shapes_and_numbers_are_refused() -> None:
    hidden, weight, bias, target = random_inputs(6, 4, 5)
    ids = torch.arange(5)
    for wrong, message in (
        ({"target_index": target[:3]}, "target_index"),
        ({"target_index": target + 5}, r"target_index must lie in \[0, 5\)"),
        ({"target_index": target - 5}, "target_index must lie"),
        ({"weight": weight[:, :3]}, "hidden states"),
        ({"bias": bias[:4]}, "hidden states"),
        ({"hidden": hidden[None]}, "hidden states"),
        ({"legal_ids": ids + 1}, "at least one of the 5 rows"),
        ({"legal_ids": ids - 1}, "at least one of the 5 rows"),
        ({"legal_ids": ids[:0]}, "at least one of the 5 rows"),
        ({"legal_ids": ids[None]}, "at least one of the 5 rows"),
        ({"legal_ids": ids.clamp(max=3)}, "twice"),
        ({"temperature": 0.0}, "must be positive"),
        ({"temperature": -1.0}, "must be positive"),
        ({"temperature": math.nan}, "must be positive"),
        ({"tile": (0, 4)}, "must be positive"),
        ({"tile": (4, -1)}, "must be positive"),
    ):
        arguments: dict[str, Any] = {
            "hidden": hidden, "weight": weight, "target_index": target, "bias": bias, "temperature": 1.0, **wrong
        }  # fmt: skip
        with pytest.raises(ValueError, match=message):
            selected_logprobs(**arguments)


@pytest.mark.parametrize("entropy_grad", [False, True])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_own_backward_passes_gradcheck(entropy_grad: bool, temperature: float) -> None:
    generator = torch.Generator().manual_seed(3)
    hidden = torch.randn(5, 3, dtype=torch.float64, generator=generator, requires_grad=True)
    weight = torch.randn(7, 3, dtype=torch.float64, generator=generator, requires_grad=True)
    bias = torch.randn(7, dtype=torch.float64, generator=generator, requires_grad=True)
    targets = torch.tensor([0, 6, 3, 3, 1])

    def both(*inputs: Tensor) -> Tensor:
        logprobs, entropy = selected_logprobs(
            inputs[0],
            inputs[1],
            targets,
            bias=inputs[2],
            temperature=temperature,
            tile=(2, 3),
            entropy_grad=entropy_grad,
        )
        return logprobs + 0.3 * entropy if entropy_grad else logprobs

    assert torch.autograd.gradcheck(both, (hidden, weight, bias))


def test_the_entropys_gradient_is_asked_for() -> None:
    hidden = torch.randn(4, 3, requires_grad=True)
    _, detached = selected_logprobs(hidden, torch.randn(6, 3), torch.zeros(4).long(), temperature=1.0)
    assert not detached.requires_grad
    _, entropy = selected_logprobs(hidden, torch.randn(6, 3), torch.zeros(4).long(), temperature=1.0, entropy_grad=True)
    assert entropy.requires_grad


def test_only_what_wants_a_gradient_gets_one() -> None:
    hidden, weight = torch.randn(4, 3, requires_grad=True), torch.randn(6, 3)
    selected_logprobs(hidden, weight, torch.zeros(4).long(), temperature=1.0)[0].sum().backward()
    assert hidden.grad is not None
    assert weight.grad is None
    again = selected_logprobs(hidden.detach(), weight.requires_grad_(), torch.zeros(4).long(), temperature=1.0)[0]
    again.sum().backward()
    assert weight.grad is not None
    with torch.inference_mode():
        assert not selected_logprobs(hidden, weight, torch.zeros(4).long(), temperature=1.0)[0].requires_grad


def test_non_contiguous_inputs_are_as_good() -> None:
    hidden, weight = torch.randn(3, 5).T.requires_grad_(), torch.randn(3, 8).T
    targets = torch.tensor([0, 1, 2, 3, 4])
    found = selected_logprobs(hidden, weight, targets, temperature=1.0, tile=(2, 3))[0]
    same = selected_logprobs(hidden.contiguous(), weight.contiguous(), targets, temperature=1.0)[0]
    torch.testing.assert_close(found, same)


@pytest.mark.parametrize("reduce", [Tensor.sum, lambda x: x.square().sum(), lambda x: (x * torch.arange(2)).sum()])
@pytest.mark.parametrize("of", ["hidden", "weight"])
def test_second_derivatives_are_refused_even_where_the_first_are_constants(reduce: Any, of: str) -> None:
    leaves = {"hidden": torch.randn(2, 3, requires_grad=True), "weight": torch.randn(4, 3, requires_grad=True)}
    loss = reduce(selected_logprobs(**leaves, target_index=torch.zeros(2).long(), temperature=1.0)[0])
    with pytest.raises(RuntimeError, match="selected_logprobs has no second derivative"):
        torch.autograd.grad(loss, leaves[of], create_graph=True)
    (first,) = torch.autograd.grad(loss, leaves[of])
    assert not first.requires_grad


def test_second_derivatives_of_the_entropy_and_of_a_whole_loss_are_refused() -> None:
    hidden = torch.randn(2, 3, requires_grad=True)
    logprobs, entropy = selected_logprobs(
        hidden, torch.randn(4, 3), torch.zeros(2).long(), temperature=1.0, entropy_grad=True
    )
    with pytest.raises(RuntimeError, match="no second derivative"):
        (logprobs.sum() + entropy.sum() + hidden.square().sum()).backward(create_graph=True)


def test_an_impossible_tile_has_no_part_in_the_distribution() -> None:
    hidden, weight, bias, _ = random_inputs(3, 4, 6)
    bias[:2] = -torch.inf
    target = torch.tensor([2, 5, 3])
    found = selected_logprobs(hidden, weight, target, temperature=0.7, bias=bias, tile=(2, 2))
    wanted = plain(hidden, weight[2:], bias[2:], target - 2, torch.arange(4), 0.7)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-10)


@pytest.mark.parametrize("junk", [torch.nan, torch.inf])
def test_a_row_that_is_not_finite_shows_and_leaves_the_others_alone(junk: float) -> None:
    hidden, weight, _, target = random_inputs(5, 4, 7)
    good = selected_logprobs(hidden, weight, target, temperature=1.0, tile=(2, 3))[0]
    hidden[2] = junk
    found = selected_logprobs(hidden, weight, target, temperature=1.0, tile=(2, 3))[0]
    assert found[2].isnan()
    others = [0, 1, 3, 4]
    assert torch.equal(found[others], good[others])


def test_bf16_with_its_gradients_is_within_its_own_rounding_of_fp64() -> None:
    hidden, weight, _, target = random_inputs(48, 64, 300)
    gradients = []
    for dtype in (torch.bfloat16, torch.float64):
        h, w = ((0.3 * tensor).bfloat16().to(dtype).requires_grad_() for tensor in (hidden, weight))
        selected_logprobs(h, w, target, temperature=0.7, tile=(16, 70))[0].sum().backward()
        gradients.append((h.grad, w.grad))
    for rounded, exact in zip(*gradients, strict=True):
        assert rounded is not None
        assert exact is not None
        # One rounding to bf16's 8 bits, at the end of sums in fp32.
        torch.testing.assert_close(rounded.double(), exact, rtol=2**-8, atol=1e-6)
