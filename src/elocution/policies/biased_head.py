"""A Qwen2 whose output layer has a bias, as CosyVoice2's speech head does; transformers' own Qwen2 would drop it unread."""

from pathlib import Path

import transformers
from safetensors import safe_open
from torch import nn
from transformers import Qwen2Config

__all__ = ["HEAD_BIAS", "Qwen2ForCausalLM", "has_head_bias"]

HEAD_BIAS = "lm_head.bias"


# Named as its base: `save_pretrained` writes the name into `architectures`, where other software looks for a class it knows.
class Qwen2ForCausalLM(transformers.Qwen2ForCausalLM):
    """transformers' Qwen2 with `lm_head.bias` [V]. A bias of -inf marks ids that are never drawn."""

    def __init__(self, config: Qwen2Config) -> None:
        super().__init__(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=True)
        self.post_init()  # type: ignore[no-untyped-call]


def has_head_bias(folder: Path) -> bool:
    """Whether the weights in the checkpoint folder have a bias of the output layer; what safetensors raises if damaged."""
    for file in sorted(folder.glob("*model*.safetensors")):
        with safe_open(file, framework="pt") as tensors:
            if HEAD_BIAS in tensors.keys():  # noqa: SIM118  # no mapping
                return True
    return False
