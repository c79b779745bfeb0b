from dataclasses import replace

import pytest
import torch
from torch import Tensor

from elocution.config.tree import LoraSettings
from elocution.policies.base import PolicyBatch
from elocution.policies.llasa import LlasaPolicy
from elocution.policies.lora import BasePolicy, adapter_parameters, add_adapter
from elocution.policies.padding import pad_prompts
from elocution.testing.policies import small_llasa, use_exact_norms
from elocution.types import Utterance

TEXTS = ["one", "mary painted the house three three"]


def policy_of(seed: int) -> LlasaPolicy:
    policy = small_llasa(seed, dtype=torch.float64)
    use_exact_norms(policy.model)
    return policy


def batch_of(policy: LlasaPolicy, *, extra: int = 0, padding: int = 0) -> PolicyBatch:
    """Three completions of two prompts, `extra` more cells of padding that hold the legal id number `padding`."""
    ids, mask = pad_prompts([policy.prompt_ids(Utterance("u", text)) for text in TEXTS])
    lengths = torch.tensor([9, 4, 6])
    generator = torch.Generator().manual_seed(7)
    drawn = policy.legal_ids[torch.randint(len(policy.legal_ids), (3, 9, 1), generator=generator)]
    completion = policy.legal_ids[torch.full((3, 9 + extra, 1), padding)]
    cells = torch.arange(9 + extra)[None, :, None] < lengths[:, None, None]
    completion[:, :9] = torch.where(cells[:, :9], drawn, completion[:, :9])
    return PolicyBatch(ids, mask, torch.tensor([0, 1, 1]), completion, cells)


def full_logprobs(policy: LlasaPolicy, batch: PolicyBatch, row: int, temperature: float) -> Tensor:
    """By one plain forward pass. Shapes: [T, K]."""
    prompt = torch.from_numpy(policy.prompt_ids(Utterance("u", TEXTS[int(batch.row_prompt[row])])))
    length = int(batch.completion_mask[row].sum())
    ids = torch.cat([prompt, batch.completion_ids[row, :length, 0]])
    logits = policy.llama(input_ids=ids[None]).logits[0, len(prompt) - 1 : -1, policy.legal_ids]
    return torch.log_softmax(logits / temperature, dim=-1)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_s47_exact_kl_of_each_cell_is_that_of_one_plain_forward_pass(temperature: float) -> None:
    policy, reference = policy_of(0), policy_of(1)
    batch = batch_of(policy)
    kl = policy.states(batch).exact_kl(reference.states(batch), temperature=temperature)
    weights = torch.rand(kl.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    (weights * kl).sum().backward()
    assert all(parameter.grad is None for parameter in reference.model.parameters())
    found = [parameter.grad for parameter in policy.model.parameters()]
    policy.model.zero_grad(set_to_none=True)
    loss = torch.zeros((), dtype=torch.float64)
    for row in range(3):
        p, q = (full_logprobs(each, batch, row, temperature) for each in (policy, reference))
        wanted = (p.exp() * (p - q.detach())).sum(dim=-1)
        torch.testing.assert_close(kl[row, : len(wanted), 0], wanted, rtol=0, atol=1e-10)
        assert kl[row, len(wanted) :].abs().sum().item() == 0
        loss = loss + (weights[row, : len(wanted), 0] * wanted).sum()
    loss.backward()
    for parameter, gradient in zip(policy.model.parameters(), found, strict=True):
        assert gradient is not None
        torch.testing.assert_close(gradient, parameter.grad, rtol=0, atol=1e-10)


@pytest.mark.parametrize("padding", [0, 16])
def test_padding_and_what_it_holds_change_nothing(padding: int) -> None:
    policy, reference = policy_of(0), policy_of(1)
    one, other = batch_of(policy), batch_of(policy, extra=4, padding=padding)
    kl, wider = (policy.states(each).exact_kl(reference.states(each), temperature=0.7) for each in (one, other))
    torch.testing.assert_close(wider[:, :9], kl, rtol=0, atol=1e-12)
    assert wider[:, 9:].abs().max().item() == 0
    assert kl.max().item() > 1e-3


def test_the_states_give_the_policys_logprobs() -> None:
    policy = policy_of(0)
    batch = batch_of(policy)
    for one, other in zip(
        policy.states(batch).logprobs(temperature=0.7), policy.logprobs(batch, temperature=0.7), strict=True
    ):
        assert torch.equal(one, other)


def test_an_adapter_is_compared_with_the_model_without_it_and_alone_gets_a_gradient() -> None:
    policy = policy_of(0)
    add_adapter(policy.model, LoraSettings(rank=4), targets=policy.lora_targets, seed=1)
    batch = batch_of(policy)
    base = BasePolicy(policy)
    fresh = policy.states(batch).exact_kl(base.states(batch), temperature=0.7)
    assert fresh.abs().max().item() == 0
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for name, parameter in adapter_parameters(policy.model).items():
            if "lora_B" in name:
                parameter.copy_(0.05 * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype))
    states = policy.states(batch)  # the order of the learner: score, score by the reference, compare
    kl = states.exact_kl(base.states(batch), temperature=0.7)
    torch.testing.assert_close(kl, states.exact_kl(policy_of(0).states(batch), temperature=0.7), rtol=0, atol=1e-12)
    assert kl[batch.completion_mask].min().item() > 0
    kl.sum().backward()
    adapter = adapter_parameters(policy.model)
    for name, parameter in policy.model.named_parameters():
        assert (parameter.grad is not None and bool(parameter.grad.any())) == (name in adapter), name


def test_a_reference_with_other_cells_or_other_legal_ids_is_refused() -> None:
    policy = policy_of(0)
    states = policy.states(batch_of(policy))
    assert states.legal_ids is not None
    for wrong in (
        policy.states(batch_of(policy, extra=1)),
        replace(states, legal_ids=states.legal_ids - 1),
        replace(states, legal_ids=None),
    ):
        with pytest.raises(ValueError, match="same cells and the same legal ids"):
            states.exact_kl(wrong, temperature=1.0)
