"""The delay pattern of multi-codebook speech: codebook j of a frame is written j rows later. Pure functions on arrays.

Source: MOSS-TTS, MossTTSDelayProcessor.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

__all__ = ["SlotIds", "apply_delay", "audio_slots", "fill_rows", "packed_turn", "split_frames", "undo_delay"]


@dataclass(frozen=True)
class SlotIds:
    """Ids of the text channel that steer the code channels, and the code that stands where there is none."""

    pad: int
    im_start: int
    im_end: int
    audio_start: int
    audio_end: int
    user_slot: int
    gen_slot: int
    delay_slot: int
    pad_code: int


def apply_delay(codes: NDArray[np.int64], pad_code: int) -> NDArray[np.int64]:
    """Rows in which codebook j lies j rows later, other cells `pad_code`. Shapes: [F, Q] -> [F + Q - 1, Q]."""
    frames, books = codes.shape
    rows = np.full((frames + books - 1, books), pad_code, dtype=np.int64)
    for book in range(books):
        rows[book : book + frames, book] = codes[:, book]
    return rows


def undo_delay(rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """The frames that lie in `rows` with all their codebooks. Shapes: [R, Q] -> [max(0, R - Q + 1), Q]."""
    books = rows.shape[1]
    frames = max(0, len(rows) - books + 1)
    return np.stack([rows[book : book + frames, book] for book in range(books)], axis=1)


def split_frames(rows: NDArray[np.int64], pad_code: int) -> list[NDArray[np.int64]]:
    """Runs of whole frames between rows of padding, in order; a frame with padding in it ends a run. Shapes: [R, Q] -> [F, Q]."""
    frames = undo_delay(rows)
    whole = np.flatnonzero((frames != pad_code).all(axis=1))
    runs = np.split(whole, np.flatnonzero(np.diff(whole) > 1) + 1)
    return [frames[run] for run in runs if len(run)]


def audio_slots(frames: int, books: int, ids: SlotIds, *, speaker: Literal["user", "assistant"]) -> list[int]:
    """The text channel of a clip, start and end included."""
    if not frames:
        return [ids.audio_start, ids.audio_end]
    gen, delay = (ids.gen_slot, ids.delay_slot) if speaker == "assistant" else (ids.user_slot, ids.user_slot)
    return [ids.audio_start, *[gen] * frames, *[delay] * (books - 1), ids.audio_end]


def packed_turn(codes: NDArray[np.int64], ids: SlotIds, *, speaker: Literal["user", "assistant"]) -> NDArray[np.int64]:
    """A clip as rows of text and codes, as models are taught with it. Shapes: [F, Q] -> [F + Q + 1, 1 + Q], 2 rows if F is 0.

    What a model draws for the same codes has another text channel: one slot for a frame less, one for the delay more.
    """
    return fill_rows(audio_slots(len(codes), codes.shape[1], ids, speaker=speaker), [codes], ids)


def fill_rows(text: list[int], clips: list[NDArray[np.int64]], ids: SlotIds) -> NDArray[np.int64]:
    """Rows with `text` as channel 0 and each clip behind an audio start. Shapes: [R], [F, Q] each -> [R, 1 + Q].

    Raises: ValueError if the starts are not as many as `clips`, or a clip does not end where its slots do.
    """
    starts = [row for row, id in enumerate(text) if id == ids.audio_start]
    books = clips[0].shape[1] if clips else 0
    if len(starts) != len(clips):
        raise ValueError(f"the text has {len(starts)} audio starts for {len(clips)} clips")
    rows = np.full((len(text), 1 + books), ids.pad_code, dtype=np.int64)
    rows[:, 0] = text
    for start, clip in zip(starts, clips, strict=True):
        delayed = apply_delay(clip, ids.pad_code)[: 0 if not len(clip) else None]
        end = start + 1 + len(delayed)
        if end >= len(text) or text[end] != ids.audio_end:
            raise ValueError(f"the clip of {len(clip)} frames at row {start} does not fit the slots of the text")
        rows[start + 1 : end, 1:] = delayed
    return rows
