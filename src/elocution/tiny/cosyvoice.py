"""The tiny CosyVoice2 checkpoint: a Qwen2 with tables and a head of its own, which begins as the tiny LLaSA and is taught on."""

from collections.abc import Sequence
from pathlib import Path

import torch
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers
from torch import Tensor
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast, Qwen2Config

from elocution.export.cosyvoice import TEXT_MODEL
from elocution.export.cosyvoice_native import write_native
from elocution.export.cosyvoice_tables import NativeRest, split_tables
from elocution.export.cosyvoice_tokens import build_tokenizer
from elocution.policies.biased_head import Qwen2ForCausalLM
from elocution.policies.cosyvoice import CosyVoice2Policy
from elocution.policies.cosyvoice_ids import read_ids
from elocution.policies.llasa import LlasaPolicy
from elocution.policies.spoken_text import TaughtTexts
from elocution.tiny.teaching import PretrainSettings

__all__ = ["SETTINGS", "TEXT_MODEL", "TEXT_ROWS", "begin_as_llasa", "build_text_model", "write_checkpoint"]

SETTINGS = PretrainSettings(epochs=2, batch_size=48, learning_rate=1e-3, warmup_steps=20)
TEXT_ROWS = 256
"""Rows of the text table; more than the tokenizer has tokens, as in the released checkpoints."""

_ORIGINS = {"<|sos|>": "<|begin_of_text|>", "<|task_id|>": "<|SPEECH_GENERATION_START|>"}

_YAML = """\
# What a reader of the released folders looks for; the parts behind the language model are the tiny codec.
sample_rate: 16000
token_frame_rate: 25
"""


def build_text_model(words: Sequence[str], taught: TaughtTexts, llasa: LlasaPolicy, folder: Path) -> None:
    """Writes the text model's folder, config of `llasa`'s sizes and tokenizer without weights: a word for a token."""
    backend = Tokenizer(
        models.WordLevel({word: index for index, word in enumerate(["<unk>", *words])}, unk_token="<unk>")
    )
    backend.normalizer = normalizers.Sequence([normalizers.Lowercase(), normalizers.Replace(Regex("[.,!?]"), "")])
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(" +"), "removed"),
            pre_tokenizers.Split(Regex(r"\w+|[^\w\s]"), "isolated"),
        ]
    )
    backend.add_special_tokens(
        [AddedToken(f"<|{name}|>", special=True) for name in ("endoftext", "im_start", "im_end")]
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, unk_token="<unk>", eos_token="<|endoftext|>", pad_token="<|endoftext|>"
    )
    taught.write(tokenizer)
    tokenizer.save_pretrained(folder)
    _config(llasa, TEXT_ROWS, tokenizer).save_pretrained(folder)


def begin_as_llasa(llasa: LlasaPolicy, text_model: Path, *, seed: int) -> CosyVoice2Policy:
    """A policy with `llasa`'s layers and its vectors of words, codes and stop; it cannot speak before it is taught.

    Biases of queries, keys and values are 0, where a Qwen2 is a Llama, and so is that of the speech head. But CosyVoice's
    prompt is two tokens around the words, and `llasa` was never shown words without its longer frame.
    """
    torch.manual_seed(seed)
    tokenizer, ids = build_tokenizer(text_model, "v2", llasa.num_codes)
    config = _config(llasa, ids.task + 1, tokenizer)
    config.tie_word_embeddings = False
    model = Qwen2ForCausalLM(config)
    old, new = llasa.llama.state_dict(), model.state_dict()
    tables = {"model.embed_tokens.weight", "lm_head.weight"}
    for name, tensor in new.items():
        if name.endswith("_proj.bias"):
            tensor.zero_()
        elif name not in tables and name in old:
            tensor.copy_(old[name])
    source, table = old["model.embed_tokens.weight"], new["model.embed_tokens.weight"]
    places = llasa.tokenizer.get_vocab()
    for token, target in tokenizer.get_vocab().items():
        place = places.get(_ORIGINS.get(token, token))
        if place is not None:
            table[target] = source[place]
    table[ids.eos] = source[llasa.stop_id]
    head, bias = new["lm_head.weight"], new["lm_head.bias"]
    head.zero_()
    bias.fill_(float("-inf"))
    rows = torch.from_numpy(ids.rows)
    head[rows], bias[rows] = table[rows], 0.0
    return CosyVoice2Policy(model, tokenizer)  # type: ignore[arg-type]


def write_checkpoint(policy: CosyVoice2Policy, folder: Path, dtype: torch.dtype) -> None:
    """Writes `llm.pt` and the yaml beside the text model, as they are released."""
    ids = read_ids(policy.tokenizer)
    tensors: dict[str, Tensor] = {name: tensor.to(dtype) for name, tensor in policy.model.state_dict().items()}
    unused = tensors["model.embed_tokens.weight"].new_zeros(TEXT_ROWS - ids.first_code, policy.llama.config.hidden_size)
    write_native(folder / "llm.pt", split_tables(tensors, ids, NativeRest({"text_rows": unused})).tensors)
    (folder / "cosyvoice2.yaml").write_text(_YAML, encoding="utf-8")


def _config(llasa: LlasaPolicy, rows: int, tokenizer: PreTrainedTokenizerBase) -> Qwen2Config:
    sizes = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")
    kept = ("max_position_embeddings", "rms_norm_eps", "rope_parameters", "initializer_range")
    llama = llasa.llama.config.to_dict()
    ends = {"bos_token_id": tokenizer.eos_token_id, "eos_token_id": tokenizer.eos_token_id}
    return Qwen2Config(
        vocab_size=rows, tie_word_embeddings=True, **{key: llama[key] for key in (*sizes, *kept)}, **ends
    )
