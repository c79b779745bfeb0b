"""The state machine of generation against the rows and the laws of the reference."""

import random
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elocution.policies.delay_pattern import SlotIds, split_frames
from elocution.policies.delay_states import DelayState, TextRule, banned_ids, replay, required_ids
from elocution.rollout.base import RolloutRequest
from elocution.rollout.torch_engine import TorchEngine
from elocution.testing.policies import small_moss
from elocution.types import Utterance

IDS = SlotIds(
    pad=0, im_start=1, im_end=2, audio_start=3, audio_end=4, user_slot=5, gen_slot=6, delay_slot=7, pad_code=1024
)
START, END, GEN, DEL, IM_END, WORD, P = 3, 4, 6, 7, 2, 9, 1024


def simulate(frames: int, books: int) -> tuple[np.ndarray, np.ndarray]:
    """The rows that come of `frames` slots before the delay, and which cells were drawn. Shapes: [T, 1 + Q] each."""
    wanted = iter([START, *[GEN] * frames, DEL, IM_END])
    state = DelayState.outside_audio(1, books)
    rows, drawn = [], []
    code = 0
    while not rows or rows[-1][0] != IM_END:
        rule = TextRule(int(state.text_rules()[0]))
        forced = required_ids(rule, IDS)
        is_drawn = forced is None or len(forced) > 1
        text = next(wanted) if is_drawn else forced[0]
        if is_drawn:
            assert text in forced if forced else text not in banned_ids(rule, IDS)
        codes = state.drawn_codes()[0].tolist()
        cells = []
        for each in codes:
            cells.append(code if each else P)
            code += each
        rows.append([text, *cells])
        drawn.append([is_drawn, *codes])
        state = state.after(torch.tensor([text]), IDS)
    return np.array(rows), np.array(drawn)


def test_two_frames_of_three_codebooks_are_the_rows_of_the_reference() -> None:
    rows, drawn = simulate(1, 3)
    assert rows[:, 0].tolist() == [START, GEN, DEL, DEL, DEL, END, IM_END]
    assert (rows[:, 1:] != P).astype(int).tolist() == [
        [0, 0, 0],
        [1, 0, 0],
        [1, 1, 0],
        [0, 1, 1],
        [0, 0, 1],
        [0, 0, 0],
        [0, 0, 0],
    ]
    assert drawn[:, 0].tolist() == [True, True, True, False, False, False, True]


@pytest.mark.parametrize(("books", "frames"), [(4, 5), (16, 40), (32, 10), (1, 3)])
def test_a_clip_has_one_frame_more_than_slots_and_its_rows_follow_the_law(books: int, frames: int) -> None:
    rows, drawn = simulate(frames, books)
    clips = split_frames(rows[:, 1:], P)
    assert [len(clip) for clip in clips] == [frames + 1]
    assert len(rows) == (frames + 1) + books + 2
    assert drawn[:, 1:].sum() == (frames + 1) * books
    assert (rows[:, 1:] != P).sum() == (frames + 1) * books
    assert (rows[:, 0] == DEL).sum() == books
    assert (~drawn[:, 0]).sum() == (books - 1) + 1
    found = replay(torch.from_numpy(rows[None, :, 0]), books, IDS).is_drawn()[0]
    assert (found.numpy() == drawn).all()


@settings(deadline=None)
@given(st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_all_rows_at_once_are_as_one_after_the_other(books: int, seed: int) -> None:
    """On texts of several clips that choose freely where there is a choice."""
    generator = random.Random(seed)
    state = DelayState.outside_audio(1, books)
    texts, rules, drawn = [], [], []
    for _ in range(8 * books + 20):
        rule = TextRule(int(state.text_rules()[0]))
        rules.append(int(rule))
        drawn.append(state.drawn_codes()[0].tolist())
        texts.append(generator.choice(required_ids(rule, IDS) or (WORD, START)))
        state = state.after(torch.tensor(texts[-1:]), IDS)
    found = replay(torch.tensor([texts]), books, IDS)
    assert found.text_rules[0].tolist() == rules
    assert found.drawn_codes[0].tolist() == drawn


def test_replay_keeps_rows_apart() -> None:
    short, long = simulate(1, 3)[0][:, 0], simulate(4, 3)[0][:, 0]
    both = np.full((2, len(long)), WORD)
    both[0, : len(short)], both[1] = short, long
    together = replay(torch.from_numpy(both), 3, IDS)
    alone = replay(torch.from_numpy(short[None]), 3, IDS)
    assert torch.equal(together.text_rules[0, : len(short)], alone.text_rules[0])
    assert torch.equal(together.drawn_codes[0, : len(short)], alone.drawn_codes[0])


def test_text_may_not_end_the_turn_in_the_first_rows() -> None:
    rules = replay(torch.full((1, 6), WORD), 3, IDS).text_rules[0].tolist()
    assert rules == [TextRule.EARLY_TEXT] * 4 + [TextRule.TEXT] * 2  # rows 0 … Q
    assert set(banned_ids(TextRule.EARLY_TEXT, IDS)) == {0, GEN, DEL, END, IM_END}
    assert set(banned_ids(TextRule.TEXT, IDS)) == {0, GEN, DEL, END}


def test_text_before_the_audio_holds_no_codes() -> None:
    text = torch.tensor([[WORD, WORD, START, GEN, GEN, DEL]])
    found = replay(text, 2, IDS)
    assert found.drawn_codes[0].int().tolist() == [[0, 0], [0, 0], [0, 0], [1, 0], [1, 1], [1, 1]]


def test_a_second_clip_starts_like_the_first() -> None:
    clip = [START, GEN, DEL, DEL, END]
    found = replay(torch.tensor([[*clip, WORD, *clip]]), 2, IDS)
    assert torch.equal(found.drawn_codes[0, :5], found.drawn_codes[0, 6:])


def test_a_prompt_that_ends_within_audio_goes_on_with_a_frame() -> None:
    prompt = torch.tensor([WORD, START, GEN, GEN])
    state = DelayState.after_prompts([prompt, torch.tensor([WORD, WORD])], 3, IDS)
    assert state.audio_rows.tolist() == [3, 0]
    assert state.text_rules().tolist() == [TextRule.FIRST_FRAME, TextRule.EARLY_TEXT]
    assert state.drawn_codes().tolist() == [[True] * 3, [False] * 3]
    later = state.after(torch.tensor([GEN, WORD]), IDS)
    assert later.text_rules().tolist() == [TextRule.FRAMES, TextRule.EARLY_TEXT]


def test_rows_that_are_kept_stay_in_their_state() -> None:
    state = DelayState.outside_audio(3, 2)
    for text in ([START, WORD, START], [GEN, WORD, DEL]):
        state = state.after(torch.tensor(text), IDS)
    kept = state.keep(torch.tensor([2, 0]))
    assert kept.text_rules().tolist() == [TextRule.DELAY, TextRule.FRAMES]
    assert kept.drawn_codes().tolist() == [state.drawn_codes()[2].tolist(), state.drawn_codes()[0].tolist()]


def test_rows_that_join_begin_anew_beside_those_under_way() -> None:
    books = 2
    state = DelayState.outside_audio(1, books)
    for text in (START, GEN, GEN, DEL):
        state = state.after(torch.tensor([text]), IDS)
    joined = state.joined(DelayState.outside_audio(1, books))
    assert joined.text_rules().tolist() == [TextRule.DELAY, TextRule.EARLY_TEXT]
    for text in ([DEL, WORD], [END, WORD]):
        joined = joined.after(torch.tensor(text), IDS)
    # Text is free to end the turn behind more rows than there are codebooks, of the row's own.
    assert joined.text_rules().tolist() == [TextRule.TEXT, TextRule.EARLY_TEXT]
    assert joined.after(torch.tensor([WORD, WORD]), IDS).text_rules().tolist() == [TextRule.TEXT, TextRule.TEXT]


def test_rules_ascend_from_forced_to_free() -> None:
    assert all(one < other for one, other in pairwise(TextRule))
    assert required_ids(TextRule.FRAMES, IDS) == (GEN, DEL)


@pytest.mark.parametrize(
    ("cell", "id"),
    [((0, 0), "pad"), ((0, 1), "code"), ((1, 0), "im_end"), ((2, 1), "pad_code"), ((-1, 0), "gen_slot")],
)
def test_s47_a_cell_that_holds_what_its_state_forbids_is_found(cell: tuple[int, int], id: str) -> None:
    policy = small_moss()
    engine = TorchEngine(policy, temperature=1.0, batch_size=64)
    engine.publish(0)
    request = RolloutRequest(policy.prompt_ids(Utterance("u", "one")), tuple((seed,) for seed in range(64)), 60)
    drawn = [each.ids for each in engine.generate([request])[0]]
    assert not any(policy.illegal_cells(ids).any() for ids in drawn)
    begun = next(ids for ids in drawn if len(policy.codes(ids)) and ids[0, 0] == policy.slots.audio_start)
    spoilt = begun.copy()
    spoilt[cell] = 3 if id == "code" else vars(policy.slots)[id]
    assert policy.illegal_cells(spoilt)[cell]
