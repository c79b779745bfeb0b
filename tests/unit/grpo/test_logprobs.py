import pytest
import torch

from elocution.grpo.logprobs import selected_logprobs


@pytest.mark.parametrize("chunk_size", [1, 3, 7, 100])
def test_chunks_equal_the_whole_with_gradients(chunk_size: int) -> None:
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(7, 5, dtype=torch.float64, generator=generator)
    weight = torch.randn(11, 5, dtype=torch.float64, generator=generator)
    target = torch.randint(11, (7,), generator=generator)
    results = []
    for chunked in (False, True):
        h, w = hidden.clone().requires_grad_(), weight.clone().requires_grad_()
        if chunked:
            logprobs, entropy = selected_logprobs(h, w, target, temperature=0.7, chunk_size=chunk_size)
        else:
            full = torch.log_softmax(h @ w.T / 0.7, dim=-1)
            logprobs, entropy = full[torch.arange(7), target], -(full.exp() * full).sum(dim=-1).detach()
        (logprobs * torch.arange(1.0, 8.0)).sum().backward()
        results.append((logprobs, entropy, h.grad, w.grad))
    for whole, cut in zip(*results, strict=True):
        assert whole is not None
        assert cut is not None
        assert torch.allclose(whole, cut, atol=1e-12)


def test_s44_temperature_is_in_the_logprobs() -> None:
    hidden, weight = torch.tensor([[1.0]]), torch.tensor([[0.0], [1.0]])
    # Logits 0 and 1 at temperature 1/2 are 0 and 2: p = 1 / (1 + e^-2).
    logprobs, _ = selected_logprobs(hidden, weight, torch.tensor([1]), temperature=0.5, chunk_size=8)
    assert logprobs.exp().item() == pytest.approx(1 / (1 + torch.e**-2))


def test_entropy_of_a_certain_choice_is_zero_not_nan() -> None:
    hidden, weight = torch.tensor([[1.0]]), torch.tensor([[0.0], [-torch.inf]])
    _, entropy = selected_logprobs(hidden, weight, torch.tensor([0]), temperature=1.0, chunk_size=8)
    assert entropy.item() == 0


def test_low_precision_inputs_are_normalised_in_fp32() -> None:
    logprobs, _ = selected_logprobs(
        torch.randn(4, 8).bfloat16(), torch.randn(9, 8).bfloat16(), torch.arange(4), temperature=1.0, chunk_size=2
    )
    assert logprobs.dtype is torch.float32
