"""MossTTSDelay's weights arranged for drawing one row at a time, with the state machine that says what a cell may hold."""

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from elocution.policies.choices import Choices
from elocution.policies.decoder_steps import DecoderSteps
from elocution.policies.delay_pattern import SlotIds
from elocution.policies.delay_states import DelayState, TextRule, banned_ids, required_ids
from elocution.policies.moss_model import MossTTSDelayModel

__all__ = ["IncrementalMoss"]


class IncrementalMoss:
    """Row steps; stale when the weights change. Logits are in fp32 at least, as the learner's."""

    def __init__(self, model: MossTTSDelayModel, ids: SlotIds, dtype: torch.dtype, *, compiled: bool) -> None:
        self._steps = DecoderSteps(model.language_model, model.embed, dtype, compiled=compiled)
        self._ids = ids
        self._books = len(model.emb_ext)
        self._text, *codes = (_precise(model.head_weight(channel)) for channel in range(1 + self._books))
        self._codes = torch.stack(codes)  # [Q, K + 1, D]
        device = self._text.device
        self._slots = torch.tensor(sorted((ids.gen_slot, ids.delay_slot, ids.audio_end)), device=device)
        self._slot_text = self._text[self._slots]
        self._text_ids = torch.arange(len(self._text), device=device)
        self._code_ids = torch.arange(self._codes.shape[1], device=device)
        # By rule: which slots it allows [3], and which ids of the vocabulary it forbids.
        self._slot_bans = torch.ones(len(TextRule), len(self._slots), dtype=torch.bool, device=device)
        self._text_bans = {}
        for rule in TextRule:
            required = required_ids(rule, ids)
            if required is None:
                self._text_bans[rule] = torch.tensor(banned_ids(rule, ids), device=device)
            else:
                self._slot_bans[rule] = ~torch.isin(self._slots, torch.tensor(required, device=device))
        self._state = DelayState.outside_audio(0, self._books, device)

    def start(self, rows: int, positions: int) -> None:
        self._steps.start(rows, positions)
        self._state = DelayState.outside_audio(0, self._books, self._text.device)

    @torch.inference_mode()
    def join(self, prompts: Sequence[NDArray[np.int64]], row_prompt: Tensor) -> Choices:
        hidden = self._steps.join(prompts, row_prompt)
        joining = DelayState.outside_audio(len(row_prompt), self._books, hidden.device)
        self._state = self._state.joined(joining)
        return self._choices(hidden, joining)

    @torch.inference_mode()
    def step(self, ids: Tensor) -> Choices:
        ids = ids.to(self._text.device)
        self._state = self._state.after(ids[:, 0], self._ids)
        return self._choices(self._steps.step(ids), self._state)

    @torch.inference_mode()
    def keep(self, rows: Tensor) -> None:
        self._state = self._state.keep(rows)
        self._steps.keep(rows)

    def _choices(self, hidden: Tensor, state: DelayState) -> Choices:
        hidden = hidden.to(self._text.dtype)
        return Choices((self._text_choices(hidden, state), self._code_choices(hidden, state)))

    def _text_choices(self, hidden: Tensor, state: DelayState) -> tuple[Tensor, Tensor]:
        """Within audio two or three ids are all there is, and the rest of the vocabulary is not looked at."""
        rules = state.text_rules()
        slots = F.linear(hidden, self._slot_text).masked_fill(self._slot_bans[rules], float("-inf"))
        is_text = rules > int(TextRule.FRAMES)
        if not is_text.any():
            return slots[:, None], self._slots
        logits = hidden.new_full((len(hidden), len(self._text)), float("-inf"))
        logits[:, self._slots] = slots
        for rule, bans in self._text_bans.items():
            rows = torch.nonzero(rules == int(rule))[:, 0]
            logits[rows] = F.linear(hidden[rows], self._text).index_fill(1, bans, float("-inf"))
        return logits[:, None], self._text_ids

    def _code_choices(self, hidden: Tensor, state: DelayState) -> tuple[Tensor, Tensor]:
        drawn = state.drawn_codes()[..., None]  # [B, Q, 1]
        is_pad = self._code_ids == self._ids.pad_code
        if not drawn.any():
            forced = torch.zeros(len(hidden), self._books, 1, dtype=hidden.dtype, device=hidden.device)
            return forced, self._code_ids[is_pad]
        logits = torch.einsum("bd,qkd->bqk", hidden, self._codes)
        logits = logits.masked_fill(drawn == is_pad, float("-inf"))
        return torch.where(drawn | ~is_pad, logits, torch.zeros_like(logits)), self._code_ids


def _precise(weight: Tensor) -> Tensor:
    return weight.detach().to(torch.promote_types(weight.dtype, torch.float32))
