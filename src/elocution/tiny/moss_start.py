"""Lets a tiny MOSS model begin as the tiny LLaSA, which already knows what is said when; it cannot speak before it is taught."""

import torch
from torch import Tensor

from elocution.codecs.tiny import TinyCodec
from elocution.codecs.tiny_residual import TinyResidualCodec
from elocution.errors import ConfigError
from elocution.policies.llasa import LlasaPolicy
from elocution.policies.moss import MossPolicy

__all__ = ["begin_as_llasa", "nearest_codes"]


@torch.no_grad()
def begin_as_llasa(policy: MossPolicy, codec: TinyResidualCodec, llasa: LlasaPolicy, llasa_codec: TinyCodec) -> None:
    """Gives `policy` in place the layers of `llasa` and its vectors of words and codes.

    An entry of the first codebook is read as the mean of the codes of its parts, and written like that of its first part. A
    Qwen3 normalises queries and keys, which a Llama does not: their gains become the typical size of the Llama's.

    Raises: ConfigError if the two models, or their codecs' spectra, are of different sizes.
    """
    language, llama = policy.moss.language_model, llasa.llama.model
    old, new = llama.state_dict(), language.state_dict()
    for name, tensor in new.items():
        if not name.startswith("layers.") or name.endswith(("q_norm.weight", "k_norm.weight")):
            continue
        if name not in old or old[name].shape != tensor.shape:
            raise ConfigError(f"{name} has {tuple(tensor.shape)}, which the LLaSA checkpoint's layers do not fit")
        tensor.copy_(old[name])
    new["norm.weight"].copy_(old["norm.weight"])
    for index in range(len(llama.layers)):
        gains = old[f"layers.{index}.input_layernorm.weight"]
        for kind in ("q", "k"):
            weight = old[f"layers.{index}.self_attn.{kind}_proj.weight"]
            new[f"layers.{index}.self_attn.{kind}_norm.weight"].fill_((weight * gains).square().sum(1).mean().sqrt())
    words = old["embed_tokens.weight"]
    known = llasa.tokenizer.get_vocab()
    for token, place in policy.tokenizer.get_vocab().items():
        if token in known:
            new["embed_tokens.weight"][place] = words[known[token]]
    parts = nearest_codes(codec, llasa_codec)
    table = words[llasa.first_code_id : llasa.first_code_id + llasa.num_codes]
    policy.moss.get_parameter("emb_ext.0.weight")[: len(parts)] = table[parts].mean(dim=1)
    policy.moss.head_weight(1)[: len(parts)] = table[parts[:, 0]]


def nearest_codes(codec: TinyResidualCodec, llasa_codec: TinyCodec) -> Tensor:
    """The codes of another codec nearest to each part of the first codebook's entries. Shapes: [K, parts].

    Raises: ConfigError if an entry is not a whole number of the other codec's.
    """
    width = llasa_codec.centroids.shape[1]
    entries = codec.codebooks[0]
    if entries.shape[1] % width:
        raise ConfigError(f"entries of {entries.shape[1]} numbers cannot be cut into codes of {width}")
    return (
        torch.cdist(entries.reshape(-1, width).float(), llasa_codec.centroids.float())
        .argmin(dim=1)
        .reshape(len(entries), -1)
    )
