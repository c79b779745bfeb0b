"""A Llama's or Qwen2's weights arranged for drawing one id at a time."""

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor
from transformers import LlamaForCausalLM, Qwen2ForCausalLM

from elocution.policies.choices import Choices
from elocution.policies.decoder_steps import DecoderSteps

__all__ = ["IncrementalLlama"]


class IncrementalLlama:
    """One-id steps over `legal_ids` [K], whose rows of the output layer are `output_weight` [K, D] and `output_bias` [K].

    Valid until the weights change. Logits are in fp32 at least, as the learner's.
    """

    def __init__(
        self,
        model: LlamaForCausalLM | Qwen2ForCausalLM,
        output_weight: Tensor,
        legal_ids: Tensor,
        dtype: torch.dtype,
        output_bias: Tensor | None = None,
        *,
        compiled: bool,
    ) -> None:
        embedding = model.model.embed_tokens.weight.detach()
        self._steps = DecoderSteps(
            model.model, lambda ids: F.embedding(ids[..., 0], embedding), dtype, compiled=compiled
        )
        self._output = output_weight.detach().to(torch.promote_types(output_weight.dtype, torch.float32))
        self._bias = None if output_bias is None else output_bias.detach().to(self._output.dtype)
        self._legal_ids = legal_ids.to(output_weight.device)

    def start(self, rows: int, positions: int) -> None:
        self._steps.start(rows, positions)

    @torch.inference_mode()
    def join(self, prompts: Sequence[NDArray[np.int64]], row_prompt: Tensor) -> Choices:
        return self._choices(self._steps.join(prompts, row_prompt))

    @torch.inference_mode()
    def step(self, ids: Tensor) -> Choices:
        return self._choices(self._steps.step(ids))

    def keep(self, rows: Tensor) -> None:
        self._steps.keep(rows)

    def _choices(self, hidden: Tensor) -> Choices:
        logits = F.linear(hidden.to(self._output.dtype), self._output, self._bias)[:, None]
        return Choices(((logits, self._legal_ids),))
