"""Checkpoints with the whole vocabulary of released ones, random weights and next to no width."""

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from elocution.policies.llasa import STRUCTURAL_TOKENS
from elocution.tiny.pretrain import CHAT_TEMPLATE

BASE = 128_000
NAMED = {
    0: "<|begin_of_text|>",
    1: "<|end_of_text|>",
    6: "<|start_header_id|>",
    7: "<|end_header_id|>",
    9: "<|eot_id|>",
}


def llama3_tokenizer(added: list[str]) -> PreTrainedTokenizerFast:
    """128 000 byte-level pieces (without merges, so texts are spelt in bytes), 256 special ones, then `added`."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {piece: index for index, piece in enumerate([*alphabet, *(f"piece{i}" for i in range(BASE - 256))])}
    backend = Tokenizer(models.BPE(vocabulary, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    special = [NAMED.get(i, f"<|reserved_special_token_{i}|>") for i in range(256)]
    backend.add_special_tokens([AddedToken(token, special=True) for token in special])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token="<|begin_of_text|>",
        eos_token="<|eot_id|>",
        pad_token="<|eot_id|>",
        chat_template=CHAT_TEMPLATE,
    )
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token in added])
    return tokenizer


def llasa_tokenizer() -> PreTrainedTokenizerFast:
    return llama3_tokenizer([*STRUCTURAL_TOKENS, *(f"<|s_{code}|>" for code in range(65_536))])


def narrow_llama(vocab_size: int, **changes: object) -> LlamaForCausalLM:
    torch.manual_seed(0)
    settings: dict[str, object] = {
        "vocab_size": vocab_size,
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "max_position_embeddings": 2048,
        "tie_word_embeddings": True,
        "initializer_range": 0.5,
        "bos_token_id": BASE,
        "eos_token_id": BASE + 9,
        "pad_token_id": BASE + 9,
    }
    return LlamaForCausalLM(LlamaConfig(**settings | changes)).eval()  # type: ignore[arg-type]


def qwen2_tokenizer(added: list[str]) -> PreTrainedTokenizerFast:
    """Byte-level pieces up to Qwen2's 151 643, its three special tokens, then `added`."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {piece: index for index, piece in enumerate([*alphabet, *(f"piece{i}" for i in range(151_643 - 256))])}
    backend = Tokenizer(models.BPE(vocabulary, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(
        [AddedToken(token, special=True) for token in ("<|endoftext|>", "<|im_start|>", "<|im_end|>")]
    )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token in added])
    return tokenizer


def narrow_qwen2(vocab_size: int) -> Qwen2ForCausalLM:
    torch.manual_seed(0)
    model = Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=vocab_size,
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            max_position_embeddings=2048,
            tie_word_embeddings=True,
            initializer_range=0.5,
            bos_token_id=151_643,
            eos_token_id=151_645,
        )
    )
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):  # released biases are not 0, which would hide a lost one
            torch.nn.init.normal_(parameter)
    return model.eval()
