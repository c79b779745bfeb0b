"""Policies of the real architecture with random weights, small enough for any test."""

import torch
from torch import nn

from elocution.config.tree import MossSettings
from elocution.policies.llasa import LlasaPolicy
from elocution.policies.moss import MossPolicy
from elocution.tiny.moss_layout import build_moss_policy, build_moss_tokenizer
from elocution.tiny.pretrain import build_policy, build_tokenizer

__all__ = ["SMALL_WORDS", "small_llasa", "small_moss", "use_exact_norms"]

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


def small_moss(
    seed: int = 0,
    *,
    dtype: torch.dtype = torch.float32,
    num_codebooks: int = 4,
    codebook_size: int = 16,
    settings: MossSettings | None = None,
) -> MossPolicy:
    """A MossTTSDelay checkpoint that knows `SMALL_WORDS`; deterministic in `seed`.

    Its heads are wider apart than random ones, so that a mistaken id or state shows in the log-probs; that of text less, so that
    completions are of all kinds: with audio and without, long and short.
    """
    policy = build_moss_policy(
        build_moss_tokenizer(SMALL_WORDS),
        num_codebooks=num_codebooks,
        codebook_size=codebook_size,
        width=48,
        layers=2,
        heads=4,
        kv_heads=2,
        frame_rate=12.5,
        sample_rate=24_000,
        max_positions=512,
        seed=seed + 2,
    )
    with torch.no_grad():
        for channel in range(policy.num_channels):
            policy.moss.head_weight(channel).mul_(20 if channel else 7)
    policy.model.to(dtype).eval()
    return MossPolicy(policy.moss, policy.tokenizer, settings=settings)
