"""Policies of the real architecture with random weights, small enough for any test."""

import torch

from elocution.policies.llasa import LlasaPolicy
from elocution.tiny.pretrain import build_policy, build_tokenizer

__all__ = ["SMALL_WORDS", "small_llasa"]

SMALL_WORDS = ("one", "three", "mary", "painted", "the", "house")


def small_llasa(seed: int = 0, *, dtype: torch.dtype = torch.float32, num_codes: int = 16) -> LlasaPolicy:
    """A LLaSA checkpoint that knows `SMALL_WORDS` and `num_codes` codes; deterministic in `seed`."""
    policy = build_policy(build_tokenizer(SMALL_WORDS, num_codes), seed=seed)
    policy.model.to(dtype).eval()
    return policy
