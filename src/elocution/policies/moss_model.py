"""MossTTSDelay over transformers' Qwen3: summed embeddings of text and codebooks in, one head for each out.

Parameter names are those of the release. Knows no prompt and no sampling.
Source: OpenMOSS/MOSS-TTS, modeling_moss_tts.py.
"""

from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors import safe_open
from torch import Tensor, nn
from transformers import PreTrainedModel, Qwen3Model

from elocution.errors import CheckpointError, ConfigError
from elocution.policies.folder import load_model
from elocution.policies.moss_config import MossTTSDelayConfig
from elocution.policies.weights import check_values

__all__ = ["MossTTSDelayModel", "load_moss_model"]


class MossTTSDelayModel(PreTrainedModel):
    """`language_model`, `emb_ext` (Q tables) and `lm_heads` (text, then Q codebooks), all separate weights."""

    config_class = MossTTSDelayConfig
    base_model_prefix = "language_model"
    supports_gradient_checkpointing = True
    adapter_root = "language_model"
    _supports_sdpa = True
    _supports_attention_backend = True

    def __init__(self, config: MossTTSDelayConfig) -> None:
        super().__init__(config)
        fields, language = config.fields, config.language_config
        self.language_model = Qwen3Model(language)
        width, rows = language.hidden_size, fields.audio_vocab_size + 1
        # The pad code's row is a vector like any other: text-only positions carry one for each codebook.
        self.emb_ext = nn.ModuleList(nn.Embedding(rows, width) for _ in range(fields.n_vq))
        self.lm_heads = nn.ModuleList(
            nn.Linear(width, size, bias=False) for size in (language.vocab_size, *[rows] * fields.n_vq)
        )
        self.pad_code = fields.audio_pad_code
        self.post_init()  # type: ignore[no-untyped-call]

    def get_input_embeddings(self) -> nn.Module:
        return self.language_model.get_input_embeddings()

    def embed(self, ids: Tensor) -> Tensor:
        """The sum of the 1 + Q embeddings of each row. Shapes: [..., 1 + Q] -> [..., D]."""
        total: Tensor = self.language_model.embed_tokens(ids[..., 0])
        for book, table in enumerate(self.emb_ext, start=1):
            total = total + table(ids[..., book])
        return total

    def head_weight(self, channel: int) -> Tensor:
        """The output matrix of a channel, 0 being text. Shapes: [V, D] or [K + 1, D]."""
        weight: Any = self.lm_heads[channel].weight
        matrix: Tensor = weight
        return matrix

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None, **kwargs: Any) -> tuple[Tensor, ...]:
        """Logits of the row after each position, by channel; the pad code gets -inf.

        Shapes: `input_ids` [B, L, 1 + Q], `attention_mask` [B, L] -> [B, L, V], then Q times [B, L, K + 1].
        """
        states = self.language_model(
            inputs_embeds=self.embed(input_ids), attention_mask=attention_mask, use_cache=False, **kwargs
        ).last_hidden_state
        text, *codes = (F.linear(states, self.head_weight(channel)) for channel in range(len(self.lm_heads)))
        pad = torch.arange(codes[0].shape[-1], device=states.device) == self.pad_code
        return text, *(logits.masked_fill(pad, float("-inf")) for logits in codes)


def load_moss_model(path: Path, config: MossTTSDelayConfig, *, dtype: torch.dtype = torch.float32) -> MossTTSDelayModel:
    """The weights in the folder `path`, held in `dtype`.

    Raises: ConfigError if `dtype` is fp16, in which the backbone overflows; CheckpointError if tensors are missing, damaged or
    of another model than the config's.
    """
    if dtype is torch.float16:
        raise ConfigError(
            "MossTTSDelay cannot compute in fp16: its activations reach 1.7e5 and overflow; use bf16 or fp32"
        )
    _check_books(path, config.fields.n_vq)
    model = load_model(MossTTSDelayModel, path, config, dtype=dtype)
    check_values(path, model.state_dict().items())
    model.eval()  # type: ignore[no-untyped-call]
    return model


def _check_books(path: Path, n_vq: int) -> None:
    """Compares `n_vq` with the tables that the files hold."""
    names: set[str] = set()
    for file in sorted(path.glob("*.safetensors")):
        with safe_open(file, framework="pt") as tensors:
            names |= set(tensors.keys())
    if not names:
        raise CheckpointError(f"{path} holds no safetensors files with tensors")
    for kind, wanted in (("emb_ext", n_vq), ("lm_heads", n_vq + 1)):
        found = len({name for name in names if name.startswith(f"{kind}.")})
        if found != wanted:
            raise CheckpointError(
                f"{path}: the config says n_vq = {n_vq}, which needs {wanted} tensors {kind}.*, but there are {found}; "
                "correct n_vq in config.json, or get the checkpoint again"
            )
