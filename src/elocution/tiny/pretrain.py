"""Supervised training of the tiny checkpoints on coded speech: LLaSA's tokenizer and model, the teacher loss of all."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from elocution.policies.base import PolicyBatch
from elocution.policies.llasa import STRUCTURAL_TOKENS, LlasaPolicy
from elocution.policies.packing import packed_hidden
from elocution.policies.speech_tokens import SpeechTokenPolicy
from elocution.tiny.teaching import PretrainSettings, mean_loss, teach
from elocution.types import Utterance

__all__ = ["build_policy", "build_tokenizer", "held_out_loss", "pretrain"]

# Renders our messages as the Llama 3.2 template does: a system turn with two dates, then the turns.
CHAT_TEMPLATE = (
    "{{- bos_token }}"
    "{%- if date_string is not defined %}{%- set date_string = '26 Jul 2024' %}{%- endif %}"
    "{{- '<|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\nToday Date: ' "
    "+ date_string + '\n\n<|eot_id|>' }}"
    "{%- for message in messages %}"
    "{{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' + message['content'] | trim "
    "+ '<|eot_id|>' }}"
    "{%- endfor %}"
)
_TEMPLATE_WORDS = (
    "\n\n \n cutting knowledge date : december 2023 today 26 jul 2024 system user assistant convert the text to speech"
).split(" ")
_BASE_TOKENS = ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")


def build_tokenizer(words: Sequence[str], num_codes: int) -> PreTrainedTokenizerFast:
    """A word-level tokenizer with LLaSA's ids: text, structural tokens, then `<|s_0|>` … in one block."""
    texts = dict.fromkeys(["<unk>", *_TEMPLATE_WORDS, *words])
    backend = Tokenizer(models.WordLevel({token: index for index, token in enumerate(texts)}, unk_token="<unk>"))
    backend.normalizer = normalizers.Sequence([normalizers.Lowercase(), normalizers.Replace(Regex("[.,!?]"), "")])
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(" +"), "removed"),
            pre_tokenizers.Split(Regex(r"\n+|\w+|[^\w\s]"), "isolated"),
        ]
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        unk_token="<unk>",
        bos_token="<|begin_of_text|>",
        eos_token="<|eot_id|>",
        pad_token="<|eot_id|>",
        additional_special_tokens=["<|start_header_id|>", "<|end_header_id|>"],
        chat_template=CHAT_TEMPLATE,
    )
    speech = [*STRUCTURAL_TOKENS, *(f"<|s_{code}|>" for code in range(num_codes))]
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token in speech])
    return tokenizer


def build_policy(tokenizer: PreTrainedTokenizerFast, *, seed: int) -> LlasaPolicy:
    """A freshly initialised Llama of about 3 M parameters for `tokenizer`."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=192,
        intermediate_size=512,
        num_hidden_layers=6,
        num_attention_heads=6,
        num_key_value_heads=2,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.convert_tokens_to_ids("<|SPEECH_GENERATION_END|>"),
        pad_token_id=tokenizer.pad_token_id,
    )
    return LlasaPolicy(LlamaForCausalLM(config), tokenizer)


@dataclass(frozen=True)
class _Example:
    """One utterance after the prefix that all prompts share. Shapes: `ids` [N]; codes start at `first_code`."""

    ids: NDArray[np.int64]
    first_code: int


def pretrain(
    policy: SpeechTokenPolicy,
    sentences: Sequence[str],
    codes: Sequence[NDArray[np.int64]],
    held_out: tuple[Sequence[str], Sequence[NDArray[np.int64]]],
    settings: PretrainSettings,
) -> None:
    """Teaches `policy` in place to write `codes[i]` after the prompt of `sentences[i]`."""
    prefix, examples = _prepare(policy, sentences, codes)
    teach(
        policy.model,
        examples,
        length=lambda example: len(example.ids),
        loss=lambda batch: _loss(policy, prefix, batch, settings.label_smoothing),
        held_out_loss=lambda: held_out_loss(policy, *held_out),
        settings=settings,
    )


def held_out_loss(policy: SpeechTokenPolicy, sentences: Sequence[str], codes: Sequence[NDArray[np.int64]]) -> float:
    """Mean cross-entropy per code or stop, nats."""
    prefix, examples = _prepare(policy, sentences, codes)
    return mean_loss(lambda batch: _loss(policy, prefix, batch, 0.0), examples, 64)


def _prepare(
    policy: SpeechTokenPolicy, sentences: Sequence[str], codes: Sequence[NDArray[np.int64]]
) -> tuple[Tensor, list[_Example]]:
    prompts = [policy.prompt_ids(Utterance(str(i), sentence)) for i, sentence in enumerate(sentences)]
    start = policy.tokenizer.convert_tokens_to_ids(policy.spec.text_tags[0])
    shared = int(np.flatnonzero(prompts[0] == start)[0]) + 1  # the rendered prompts differ only after this token
    examples = []
    for prompt, clip in zip(prompts, codes, strict=True):
        rest = prompt[shared:]
        examples.append(_Example(np.concatenate([rest, policy.completion_ids(clip)[:, 0]]), len(rest)))
    return torch.from_numpy(prompts[0][None, :shared]), examples


def _loss(policy: SpeechTokenPolicy, prefix: Tensor, examples: Sequence[_Example], label_smoothing: float) -> Tensor:
    longest = max(len(example.ids) for example in examples)
    ids = torch.zeros(len(examples), longest, 1, dtype=torch.long)
    real = torch.zeros(len(examples), longest, 1, dtype=torch.bool)
    taught = torch.zeros(len(examples), longest, dtype=torch.bool)
    for row, example in enumerate(examples):
        ids[row, : len(example.ids), 0] = torch.from_numpy(example.ids)
        real[row, : len(example.ids)] = True
        taught[row, example.first_code : len(example.ids)] = True
    batch = PolicyBatch(prefix, torch.ones_like(prefix), torch.zeros(len(examples), dtype=torch.long), ids, real)
    hidden = packed_hidden(policy.llama.model, batch)[taught[real[..., 0]]]
    head = policy.llama.get_output_embeddings()
    bias = None if head.bias is None else head.bias[policy.legal_ids]
    logits = F.linear(hidden, head.weight[policy.legal_ids], bias)
    targets = torch.searchsorted(policy.legal_ids, ids[..., 0][taught])
    return F.cross_entropy(logits, targets, label_smoothing=label_smoothing)
