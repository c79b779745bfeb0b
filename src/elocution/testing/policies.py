"""Policies of the real architecture with random weights, small enough for any test."""

import torch
from torch import nn

from elocution.policies.llasa import LlasaPolicy
from elocution.tiny.pretrain import build_policy, build_tokenizer

__all__ = ["SMALL_WORDS", "small_llasa", "use_exact_norms"]

SMALL_WORDS = ("one", "three", "mary", "painted", "the", "house")


def small_llasa(seed: int = 0, *, dtype: torch.dtype = torch.float32, num_codes: int = 16) -> LlasaPolicy:
    """A LLaSA checkpoint that knows `SMALL_WORDS` and `num_codes` codes; deterministic in `seed`."""
    policy = build_policy(build_tokenizer(SMALL_WORDS, num_codes), seed=seed)
    policy.model.to(dtype).eval()
    return policy


def use_exact_norms(model: nn.Module) -> None:
    """Puts torch's RMS norms in the place of transformers', which compute in fp32 even in an fp64 model."""
    for place, module in list(model.named_modules()):
        if type(module).__name__.endswith("RMSNorm"):
            weight, eps = module.weight, module.variance_epsilon
            norm = nn.RMSNorm(weight.shape[0], eps=eps, dtype=weight.dtype)
            norm.load_state_dict({"weight": weight})
            model.set_submodule(place, norm)
