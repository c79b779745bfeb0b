"""Numbers are those of the reference: Q = 3 codebooks, F = 2 frames, pad code 1024."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elocution.policies.delay_pattern import (
    SlotIds,
    apply_delay,
    audio_slots,
    fill_rows,
    packed_turn,
    split_frames,
    undo_delay,
)

IDS = SlotIds(
    pad=151643,
    im_start=151644,
    im_end=151645,
    audio_start=151652,
    audio_end=151653,
    user_slot=151654,
    gen_slot=151656,
    delay_slot=151662,
    pad_code=1024,
)
START, END, GEN, DEL, USER, P = IDS.audio_start, IDS.audio_end, IDS.gen_slot, IDS.delay_slot, IDS.user_slot, 1024
CODES = np.array([[10, 20, 30], [11, 21, 31]])


def test_codebook_j_of_a_frame_lies_j_rows_later() -> None:
    assert apply_delay(CODES, P).tolist() == [[10, P, P], [11, 20, P], [P, 21, 30], [P, P, 31]]


def test_a_packed_turn_is_the_one_that_models_are_taught_with() -> None:
    assert packed_turn(CODES, IDS, speaker="assistant").tolist() == [
        [START, P, P, P],
        [GEN, 10, P, P],
        [GEN, 11, 20, P],
        [DEL, P, 21, 30],
        [DEL, P, P, 31],
        [END, P, P, P],
    ]


def test_in_a_user_turn_one_slot_stands_for_frames_and_delay() -> None:
    assert packed_turn(CODES, IDS, speaker="user")[:, 0].tolist() == [START, USER, USER, USER, USER, END]


def test_a_clip_of_no_frames_is_start_and_end() -> None:
    rows = packed_turn(np.empty((0, 3), dtype=np.int64), IDS, speaker="assistant")
    assert rows.tolist() == [[START, P, P, P], [END, P, P, P]]


@given(st.integers(0, 12), st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_undoing_the_delay_gives_the_codes_back(frames: int, books: int, seed: int) -> None:
    codes = np.random.default_rng(seed).integers(0, 1024, (frames, books))
    delayed = apply_delay(codes, P)
    assert delayed.shape == (frames + books - 1, books)
    assert (undo_delay(delayed) == codes).all()
    assert (delayed != P).sum() == frames * books


def test_fewer_rows_than_codebooks_hold_no_frame() -> None:
    assert undo_delay(np.zeros((2, 3), dtype=np.int64)).shape == (0, 3)
    assert undo_delay(np.zeros((0, 3), dtype=np.int64)).shape == (0, 3)


def test_clips_between_padding_are_found_in_order() -> None:
    pad = np.full((2, 3), P)
    rows = np.concatenate([pad, apply_delay(CODES, P), pad, apply_delay(CODES[:1], P), pad])
    assert [clip.tolist() for clip in split_frames(rows, P)] == [CODES.tolist(), CODES[:1].tolist()]
    assert split_frames(pad, P) == []


def test_a_clip_that_was_cut_off_keeps_the_frames_that_are_whole() -> None:
    rows = apply_delay(np.arange(15).reshape(5, 3), P)[:5]  # two of the frames have not got their last codebooks
    assert [clip.tolist() for clip in split_frames(rows, P)] == [[[0, 1, 2], [3, 4, 5], [6, 7, 8]]]


def test_codes_go_where_the_slots_of_the_text_are() -> None:
    text = [7, 8, *audio_slots(2, 3, IDS, speaker="user"), 9, *audio_slots(1, 3, IDS, speaker="assistant")]
    rows = fill_rows(text, [CODES, CODES[1:]], IDS)
    assert rows[:, 0].tolist() == text
    assert [clip.tolist() for clip in split_frames(rows[:, 1:], P)] == [CODES.tolist(), CODES[1:].tolist()]
    assert (rows[:3, 1:] == P).all()


@pytest.mark.parametrize("clips", [[], [CODES, CODES], [CODES[:1]], [np.repeat(CODES, 2, axis=0)]])
def test_clips_that_do_not_fit_their_slots_are_refused(clips: list[np.ndarray]) -> None:
    with pytest.raises(ValueError, match=r"audio starts|does not fit"):
        fill_rows(audio_slots(2, 3, IDS, speaker="user"), clips, IDS)
