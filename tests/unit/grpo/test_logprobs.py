import math
import weakref

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
    logprobs, entropy = selected_logprobs(hidden, weight, torch.tensor([0, 1]), temperature=1.0, chunk_size=8)
    assert logprobs.exp().tolist() == pytest.approx([0.75, 0.25])
    assert entropy.tolist() == pytest.approx([0.75 * math.log(4 / 3) + 0.25 * math.log(4)] * 2)


def test_s44_temperature_is_in_the_logprobs_and_in_the_entropy() -> None:
    hidden, weight = torch.tensor([[1.0]]), torch.tensor([[0.0], [1.0]])
    # Logits 0 and 1 at temperature 1/2 are 0 and 2: p = 1 / (1 + e^-2).
    logprobs, cold = selected_logprobs(hidden, weight, torch.tensor([1]), temperature=0.5, chunk_size=8)
    assert logprobs.exp().item() == pytest.approx(1 / (1 + torch.e**-2))
    _, hot = selected_logprobs(hidden, weight, torch.tensor([1]), temperature=1e6, chunk_size=8)
    assert cold.item() < hot.item() == pytest.approx(math.log(2))


@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("chunk_size", [1, 3, 7, 100])
def test_chunks_equal_the_whole_with_gradients(chunk_size: int, with_bias: bool) -> None:
    inputs = random_inputs(7, 5, 11)
    results = []
    for chunked in (False, True):
        h, w, b = (tensor.clone().requires_grad_() for tensor in inputs[:3])
        target = inputs[3]
        if chunked:
            logprobs, entropy = selected_logprobs(
                h, w, target, temperature=0.7, chunk_size=chunk_size, bias=b if with_bias else None
            )
        else:
            full = torch.log_softmax((h @ w.T + (b if with_bias else 0)) / 0.7, dim=-1)
            logprobs, entropy = full[torch.arange(7), target], -(full.exp() * full).sum(dim=-1).detach()
        (logprobs * torch.arange(1.0, 8.0)).sum().backward()
        results.append((logprobs, entropy, h.grad, w.grad) + ((b.grad,) if with_bias else ()))
        assert not entropy.requires_grad
    for whole, cut in zip(*results, strict=True):
        assert whole is not None
        assert cut is not None
        assert torch.allclose(whole, cut, atol=1e-12)


def test_gradient_equals_finite_differences() -> None:
    hidden, weight, bias, target = random_inputs(4, 3, 5)
    assert torch.autograd.gradcheck(
        lambda h, w, b: selected_logprobs(h, w, target, temperature=0.6, chunk_size=3, bias=b)[0],
        [tensor.requires_grad_() for tensor in (hidden, weight, bias)],
    )


def test_the_order_of_the_legal_ids_does_not_matter() -> None:
    hidden, weight, _, target = random_inputs(6, 4, 9)
    order = torch.randperm(9, generator=torch.Generator().manual_seed(1))
    plain = selected_logprobs(hidden, weight, target, temperature=1.0, chunk_size=4)
    permuted = selected_logprobs(hidden, weight[order], order.argsort()[target], temperature=1.0, chunk_size=4)
    for one, other in zip(plain, permuted, strict=True):
        assert torch.allclose(one, other)


def test_entropy_of_a_certain_choice_is_zero_not_nan() -> None:
    hidden, weight = torch.tensor([[1.0]]), torch.tensor([[0.0], [-torch.inf]])
    _, entropy = selected_logprobs(hidden, weight, torch.tensor([0]), temperature=1.0, chunk_size=8)
    assert entropy.item() == 0


def test_s51_an_id_of_probability_zero_leaves_gradients_finite() -> None:
    hidden, weight, bias, _ = random_inputs(3, 4, 5)
    hidden.requires_grad_()
    weight.requires_grad_()
    bias[2] = -torch.inf
    logprobs, entropy = selected_logprobs(
        hidden, weight, torch.tensor([0, 1, 3]), temperature=1.0, chunk_size=2, bias=bias
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
        logprobs, entropy = selected_logprobs(h, w, target, temperature=1.0, chunk_size=8)
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


def test_s86_memory_is_bounded_by_the_chunk_and_not_by_the_batch() -> None:
    rows, legal, chunk_size = 512, 1000, 16
    peaks = []
    for size in (chunk_size, rows):
        hidden, weight, _, target = random_inputs(rows, 4, legal)
        hidden.requires_grad_()
        weight.requires_grad_()
        with LiveMemory() as memory:
            selected_logprobs(hidden, weight, target, temperature=1.0, chunk_size=size)[0].sum().backward()
        peaks.append(memory.peak)
    # The whole logits would be 512 000 elements; a chunk's are 16 000, and a few copies of them stand at once.
    assert peaks[0] < 8 * chunk_size * legal < rows * legal < peaks[1]


def test_no_row_gives_no_logprob() -> None:
    hidden, weight, _, target = random_inputs(3, 4, 5)
    logprobs, entropy = selected_logprobs(hidden[:0], weight, target[:0], temperature=1.0, chunk_size=4)
    assert logprobs.shape == entropy.shape == (0,)


def test_wrong_shapes_and_numbers_are_refused() -> None:
    hidden, weight, bias, target = random_inputs(6, 4, 5)
    for wrong in (
        {"target_index": target[:3]},
        {"weight": weight[:, :3]},
        {"bias": bias[:4]},
        {"hidden": hidden[None]},
    ):
        arguments = {"hidden": hidden, "weight": weight, "target_index": target, "bias": bias, **wrong}
        with pytest.raises(ValueError, match=r"expected hidden \[N, D\]"):
            selected_logprobs(**arguments, temperature=1.0, chunk_size=6)
    for temperature, chunk_size in ((0.0, 4), (-1.0, 4), (math.nan, 4), (1.0, 0)):
        with pytest.raises(ValueError, match="must be positive"):
            selected_logprobs(hidden, weight, target, temperature=temperature, chunk_size=chunk_size)


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
            chunk_size=2,
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
    found = selected_logprobs(hidden, weight, targets, temperature=1.0, chunk_size=2)[0]
    same = selected_logprobs(hidden.contiguous(), weight.contiguous(), targets, temperature=1.0)[0]
    torch.testing.assert_close(found, same)


def test_second_derivatives_are_refused() -> None:
    hidden = torch.randn(2, 3, requires_grad=True)
    loss = selected_logprobs(hidden, torch.randn(4, 3), torch.zeros(2).long(), temperature=1.0)[0].square().sum()
    (first,) = torch.autograd.grad(loss, hidden, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.sum().backward()
