"""Restricts an SGLang server's draws to the policy's legal ids. `LegalRanges` runs inside the server.

There it is imported from this file, so it needs nothing but torch. The server must be started with
`--enable-custom-logit-processor` and find the package `elocution` (its other dependencies are not needed).
"""

import json
import pickle
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

__all__ = ["LegalRanges", "legal_ranges", "processor_string"]


def legal_ranges(ids: Sequence[int]) -> list[int]:
    """Ascending ids as first and last of each gapless run, flattened: [3, 7, 8, 9] -> [3, 3, 7, 9]."""
    ranges: list[int] = []
    for index in ids:
        if ranges and index == ranges[-1] + 1:
            ranges[-1] = index
        else:
            ranges += [index, index]
    return ranges


class LegalRanges:
    """Takes the probability of every id outside `custom_params["legal_ranges"]`, before temperature and log-probs.

    Source: `apply_custom_logit_processor` and `Sampler.forward`, sglang/srt/layers/sampler.py.
    """

    def __call__(self, logits: Tensor, custom_param_list: list[dict[str, Any]] | None = None) -> Tensor:
        """Shapes: `logits` [B, V], one entry of `custom_param_list` for each row; returns [B, V]."""
        asked = [tuple(params["legal_ranges"]) for params in custom_param_list or ()]
        masks = {ranges: _mask(ranges, logits.shape[-1], logits.device) for ranges in set(asked)}
        legal = masks[asked[0]][None] if len(masks) == 1 else torch.stack([masks[ranges] for ranges in asked])
        return logits.masked_fill(~legal, float("-inf"))


@lru_cache(maxsize=8)  # the server makes a new processor for every batch
def _mask(ranges: tuple[int, ...], vocabulary: int, device: torch.device) -> Tensor:
    mask = torch.zeros(vocabulary, dtype=torch.bool, device="cpu")
    for first, last in zip(ranges[::2], ranges[1::2], strict=True):
        mask[first : last + 1] = True
    return mask.to(device)


def processor_string() -> str:
    """The `custom_logit_processor` of a request that has the server use `LegalRanges`: its import path, pickled.

    Source: `CustomLogitProcessor.from_str`, sglang/srt/sampling/custom_logit_processor.py.
    """
    return json.dumps({"callable": pickle.dumps(LegalRanges, protocol=4).hex()})
