"""Tokenizer and random weights of small MOSS checkpoints, in the released layout."""

from collections.abc import Sequence

import torch
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from elocution.policies.moss import MossPolicy
from elocution.policies.moss_config import MossTTSDelayConfig
from elocution.policies.moss_model import MossTTSDelayModel
from elocution.policies.moss_prompt import LANGUAGE_NAMES, user_content

__all__ = ["CHAT_TEMPLATE", "build_moss_policy", "build_moss_tokenizer"]

CHAT_TEMPLATE = (
    "{%- for message in messages %}"
    "{{- '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"
)
# In the order of the released ids; the config names them by what they are for.
_SPECIAL = {
    "pad_token_id": "<|endoftext|>",
    "im_start_token_id": "<|im_start|>",
    "im_end_token_id": "<|im_end|>",
    "audio_start_token_id": "<|audio_start|>",
    "audio_end_token_id": "<|audio_end|>",
    "audio_user_slot_token_id": "<|audio_user_slot|>",
    "audio_assistant_gen_slot_token_id": "<|audio_assistant_gen_slot|>",
    "audio_assistant_delay_slot_token_id": "<|audio_assistant_delay_slot|>",
}
# Lines of the user's turn are one token each, so that a prompt is mostly its words and its recording.
_PIECES = r"<user_inst>\n|- [\w() ]+:\n(?:none\n)?|\n?</user_inst>|\n+|\w+|[^\w\s]"


def build_moss_tokenizer(words: Sequence[str]) -> PreTrainedTokenizerFast:
    """A word-level tokenizer that knows `words` and those of a prompt; the special tokens come last, as in the release."""
    split = pre_tokenizers.Split(Regex(_PIECES), "removed", invert=True)
    lower = normalizers.Sequence([normalizers.Lowercase(), normalizers.Replace(Regex("[.,!?]"), "")])
    spoken = user_content(reference="[S1]:\n", instruction="", language=" ".join(LANGUAGE_NAMES.values()), text="")
    frame = f"user\nassistant\n{user_content()}\n{spoken}"
    pieces = [piece for piece, _ in split.pre_tokenize_str(lower.normalize_str(frame))]
    texts = dict.fromkeys(["<unk>", *pieces, *words])
    backend = Tokenizer(models.WordLevel({token: index for index, token in enumerate(texts)}, unk_token="<unk>"))
    backend.normalizer, backend.pre_tokenizer = lower, split
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        unk_token="<unk>",
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        chat_template=CHAT_TEMPLATE,
    )
    tokenizer.add_tokens([AddedToken(token, normalized=False, special=True) for token in _SPECIAL.values()])
    return tokenizer


def build_moss_policy(
    tokenizer: PreTrainedTokenizerFast,
    *,
    num_codebooks: int,
    codebook_size: int,
    width: int,
    layers: int,
    heads: int,
    kv_heads: int,
    frame_rate: float,
    sample_rate: int,
    max_positions: int,
    rope_theta: float = 1e6,
    seed: int,
) -> MossPolicy:
    """A freshly initialised model for `tokenizer`, whose MLPs are 8/3 as wide as its stream."""
    torch.manual_seed(seed)
    head_dim = width // heads
    config = MossTTSDelayConfig(
        language_config={
            "vocab_size": len(tokenizer),
            "hidden_size": width,
            "intermediate_size": 8 * width // 3,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "num_key_value_heads": kv_heads,
            "head_dim": head_dim,
            "max_position_embeddings": max_positions,
            "rope_theta": rope_theta,
            "pad_token_id": tokenizer.pad_token_id,
            "eos_token_id": tokenizer.eos_token_id,
        },
        architectures=["MossTTSDelayModel"],
        n_vq=num_codebooks,
        audio_vocab_size=codebook_size,
        audio_pad_code=codebook_size,
        sampling_rate=sample_rate,
        codec_frame_rate=frame_rate,
        **{key: tokenizer.convert_tokens_to_ids(token) for key, token in _SPECIAL.items()},
    )
    return MossPolicy(MossTTSDelayModel(config), tokenizer)
