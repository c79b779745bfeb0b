"""Llama-shaped decoders for the loop: hidden states of completions, each prompt computed once.

Works on transformers' own `LlamaForCausalLM`; knows no prompt format and no codec.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import DynamicCache, LlamaForCausalLM

from elocution.policies.base import PolicyBatch

__all__ = ["completion_hidden", "pad_prompts", "positions_of"]


def pad_prompts(prompts: Sequence[NDArray[np.int64]]) -> tuple[Tensor, Tensor]:
    """Prompts padded on the left with id 0, and the mask of what is real. Shapes: [P, L] each."""
    length = max(len(prompt) for prompt in prompts)
    ids = torch.zeros(len(prompts), length, dtype=torch.long)
    mask = torch.zeros(len(prompts), length, dtype=torch.long)
    for row, prompt in enumerate(prompts):
        ids[row, length - len(prompt) :] = torch.from_numpy(prompt)
        mask[row, length - len(prompt) :] = 1
    return ids, mask


def positions_of(mask: Tensor) -> Tensor:
    """Positions counted from the first real id of each row. Shapes: [B, L] -> [B, L]."""
    return (mask.cumsum(dim=1) - 1).clamp_min(0)


def completion_hidden(model: LlamaForCausalLM, batch: PolicyBatch) -> Tensor:
    """Final hidden states from which each completion id is predicted. Shapes: [B, T, D].

    Each prompt runs through the model once, whatever the number of its completions; gradients reach it through
    all of them.
    """
    cache = DynamicCache(config=model.config)
    prompt_hidden: Tensor = model.model(
        input_ids=batch.prompt_ids,
        attention_mask=batch.prompt_mask,
        position_ids=positions_of(batch.prompt_mask),
        cache=cache,
        use_cache=True,
    ).last_hidden_state
    first: Tensor = prompt_hidden[batch.row_prompt, -1:]
    ids, mask = batch.completion_ids[:, :-1, 0], batch.completion_mask[:, :-1, 0].long()
    if ids.shape[1] == 0:
        return first
    cache.batch_select_indices(batch.row_prompt)
    full_mask = torch.cat([batch.prompt_mask[batch.row_prompt], mask], dim=1)
    rest = model.model(
        input_ids=ids,
        attention_mask=full_mask,
        position_ids=positions_of(full_mask)[:, -ids.shape[1] :],
        cache=cache,
        use_cache=True,
    ).last_hidden_state
    return torch.cat([first, rest], dim=1)
