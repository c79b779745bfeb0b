"""The state machine by which a delay-pattern model writes rows: what a cell may hold given the text ids before it.

Sampling and scoring both follow it. Knows ids and lengths only, no model.
Source: MOSS-TTS, MossTTSDelayModel.generate.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elocution.policies.delay_pattern import SlotIds

__all__ = ["DelayState", "Replay", "TextRule", "banned_ids", "illegal_cells", "replay", "required_ids"]

_NEVER = -1  # delayed length before the first delay slot


class TextRule(IntEnum):
    """What the text channel of a row may hold."""

    DELAY = 0
    """The delay slot, forced."""
    END = 1
    """The end of audio, forced."""
    FIRST_FRAME = 2
    """A slot for a frame, forced: the first row after a prompt that ends within audio."""
    FRAMES = 3
    """A slot for one more frame, or the delay slot, which ends the clip."""
    EARLY_TEXT = 4
    """Text or the start of audio, but not the end of the turn."""
    TEXT = 5
    """Text, the start of audio, or the end of the turn."""


def required_ids(rule: TextRule, ids: SlotIds) -> tuple[int, ...] | None:
    """The only ids that `rule` allows, ascending; None if it allows all but `banned_ids`."""
    allowed = {
        TextRule.DELAY: (ids.delay_slot,),
        TextRule.END: (ids.audio_end,),
        TextRule.FIRST_FRAME: (ids.gen_slot,),
        TextRule.FRAMES: tuple(sorted((ids.gen_slot, ids.delay_slot))),
    }
    return allowed.get(rule)


def banned_ids(rule: TextRule, ids: SlotIds) -> tuple[int, ...]:
    """The ids that a rule for text forbids, ascending."""
    slots = {ids.pad, ids.gen_slot, ids.delay_slot, ids.audio_end}
    return tuple(sorted(slots | {ids.im_end} if rule is TextRule.EARLY_TEXT else slots))


@dataclass(frozen=True)
class DelayState:
    """Rows about to be written. Shapes: [B] each; `written` counts rows since the prompt.

    `audio_rows` counts the rows of the clip so far, `delay_rows` those since its first delay slot, that one included; -1
    before it.
    """

    audio_rows: Tensor
    delay_rows: Tensor
    is_audio: Tensor
    written: Tensor
    num_codebooks: int

    @classmethod
    def after_prompts(cls, prompts: list[Tensor], num_codebooks: int, ids: SlotIds) -> "DelayState":
        """The state behind each prompt, of which only the text channel is given. Shapes: [L] each."""
        lengths = []
        for text in prompts:
            starts = torch.nonzero(text == ids.audio_start)
            goes_on = len(starts) > 0 and int(text[-1]) in (ids.audio_start, ids.gen_slot)
            lengths.append(len(text) - int(starts[-1]) if goes_on else 0)
        audio_rows = torch.tensor(lengths, dtype=torch.long, device="cpu")
        none = torch.zeros_like(audio_rows)
        return cls(audio_rows, torch.full_like(audio_rows, _NEVER), audio_rows > 0, none, num_codebooks)

    @classmethod
    def outside_audio(cls, rows: int, num_codebooks: int, device: torch.device | None = None) -> "DelayState":
        """The state of `rows` rows behind prompts that end in text."""
        zeros = torch.zeros(rows, dtype=torch.long, device=device or "cpu")
        return cls(zeros, torch.full_like(zeros, _NEVER), zeros.bool(), zeros, num_codebooks)

    def text_rules(self) -> Tensor:
        """The `TextRule` of each row's text. Shapes: [B]."""
        return _text_rules(self.is_audio, self.delay_rows, self.written, self.num_codebooks)

    def drawn_codes(self) -> Tensor:
        """Which codebooks of each row are drawn; the others hold the pad code. Shapes: [B, Q]."""
        return _drawn_codes(self.audio_rows, self.delay_rows, self.num_codebooks)

    def after(self, text: Tensor, ids: SlotIds) -> "DelayState":
        """The state once `text` has been written. Shapes: [B]."""
        is_end = text == ids.audio_end
        is_audio = (self.is_audio | (text == ids.audio_start)) & ~is_end
        is_slot = (text == ids.audio_start) | (text == ids.gen_slot) | (text == ids.delay_slot)
        audio_rows = torch.where(is_end, 0, self.audio_rows + is_slot)
        delay_rows = torch.where((self.delay_rows < 0) & (text == ids.delay_slot), 0, self.delay_rows)
        delay_rows = torch.where(delay_rows >= 0, delay_rows + 1, delay_rows)
        delay_rows = torch.where(delay_rows > self.num_codebooks, _NEVER, delay_rows)
        return DelayState(audio_rows, delay_rows, is_audio, self.written + 1, self.num_codebooks)

    def keep(self, rows: Tensor) -> "DelayState":
        """The rows `rows` alone, in that order. Shapes: [B']."""
        rows = rows.to(self.audio_rows.device)
        return DelayState(
            self.audio_rows[rows], self.delay_rows[rows], self.is_audio[rows], self.written[rows], self.num_codebooks
        )

    def joined(self, others: "DelayState") -> "DelayState":
        """These rows, then `others`."""
        return DelayState(
            torch.cat([self.audio_rows, others.audio_rows]),
            torch.cat([self.delay_rows, others.delay_rows]),
            torch.cat([self.is_audio, others.is_audio]),
            torch.cat([self.written, others.written]),
            self.num_codebooks,
        )


class Replay(NamedTuple):
    """What the cells of written rows might have held. Shapes: `text_rules` [B, T]; `drawn_codes` [B, T, Q]."""

    text_rules: Tensor
    drawn_codes: Tensor

    def is_drawn(self) -> Tensor:
        """The cells that were a choice and not forced. Shapes: [B, T, 1 + Q]."""
        text = self.text_rules >= int(TextRule.FRAMES)
        return torch.cat([text[..., None], self.drawn_codes], dim=-1)


def replay(text: Tensor, num_codebooks: int, ids: SlotIds) -> Replay:
    """What `DelayState` says of each row of completions that follow it, for prompts that end in text, all rows at once.

    What it says behind a text id that was not allowed means nothing. Shapes: `text` [B, T].
    """
    written = torch.arange(text.shape[1], device=text.device).expand_as(text)
    is_start, is_end, is_delay = (text == id for id in (ids.audio_start, ids.audio_end, ids.delay_slot))
    last_start, last_end = (_before(torch.where(flag, written, -1).cummax(dim=1).values) for flag in (is_start, is_end))
    in_clip = last_end.clamp_min(0)

    def since_end(flag: Tensor) -> Tensor:
        """How many flags lie behind the last end of audio and before the row."""
        counts = flag.cumsum(dim=1)
        return _before(counts, 0) - torch.where(last_end >= 0, counts.gather(1, in_clip), 0)

    audio_rows = since_end(is_start | is_delay | (text == ids.gen_slot))
    delays = since_end(is_delay)
    delay_rows = torch.where(delays > 0, delays, _NEVER)
    return Replay(
        _text_rules(last_start > last_end, delay_rows, written, num_codebooks),
        _drawn_codes(audio_rows, delay_rows, num_codebooks),
    )


def illegal_cells(rows: NDArray[np.int64], ids: SlotIds) -> NDArray[np.bool_]:
    """Cells of a completion, of a prompt that ends in text, that hold what `replay` does not allow there.

    Behind the first of them it means nothing. Shapes: [T, 1 + Q] -> [T, 1 + Q].
    """
    text = torch.from_numpy(rows[None, :, 0])
    found = replay(text, rows.shape[1] - 1, ids)
    illegal = np.empty(rows.shape, dtype=np.bool_)
    illegal[:, 1:] = (rows[:, 1:] == ids.pad_code) == found.drawn_codes[0].numpy()
    for rule in TextRule:
        required = required_ids(rule, ids)
        legal = ~np.isin(rows[:, 0], banned_ids(rule, ids)) if required is None else np.isin(rows[:, 0], required)
        ruled = found.text_rules[0].numpy() == int(rule)
        illegal[ruled, 0] = ~legal[ruled]
    return illegal


def _text_rules(is_audio: Tensor, delay_rows: Tensor, written: Tensor, num_codebooks: int) -> Tensor:
    frames = torch.where(written == 0, int(TextRule.FIRST_FRAME), int(TextRule.FRAMES))
    text = torch.where(written <= num_codebooks, int(TextRule.EARLY_TEXT), int(TextRule.TEXT))
    free = torch.where(is_audio, frames, text)
    delaying = (delay_rows >= 0) & (delay_rows < num_codebooks)
    free = torch.where(delaying, int(TextRule.DELAY), free)
    return torch.where(delay_rows == num_codebooks, int(TextRule.END), free)


def _drawn_codes(audio_rows: Tensor, delay_rows: Tensor, num_codebooks: int) -> Tensor:
    """Shapes: [...] -> [..., Q]."""
    books = torch.arange(num_codebooks, device=audio_rows.device)
    begun = audio_rows[..., None] > books
    return begun & ((delay_rows[..., None] < 0) | (books >= delay_rows[..., None]))


def _before(values: Tensor, first: int = -1) -> Tensor:
    """Each row's value moved to the next, `first` in front. Shapes: [B, T] -> [B, T]."""
    return torch.cat([torch.full_like(values[:, :1], first), values[:, :-1]], dim=1)
