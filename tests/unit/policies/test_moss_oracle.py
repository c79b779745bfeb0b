"""Delay pattern, state machine, prompt and model against moss-tts-lite, an independent implementation for 32 codebooks.

Needs `pip install moss-tts-lite`; skipped where it is absent.
"""

import random
from typing import Any

import numpy as np
import pytest
import torch

from elocution.policies.delay_pattern import SlotIds, apply_delay, audio_slots, split_frames
from elocution.policies.delay_states import DelayState, TextRule, banned_ids, replay, required_ids
from elocution.policies.moss_config import MossTTSDelayConfig
from elocution.policies.moss_model import MossTTSDelayModel
from elocution.policies.moss_prompt import user_content

pytest.importorskip(
    "moss_tts_lite", reason="pip install moss-tts-lite checks MOSS against an independent implementation"
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
BOOKS, WORDS = 32, 151700


@pytest.mark.parametrize(("frames", "books"), [(1, 4), (7, 16), (40, 32), (2, 1)])
def test_the_delay_pattern_is_theirs(frames: int, books: int) -> None:
    from moss_tts_lite.codec import delayed_rows_to_segments
    from moss_tts_lite.prompt import apply_delay_pattern

    codes = np.random.default_rng(0).integers(0, 1024, (frames, books))
    theirs = apply_delay_pattern(torch.from_numpy(codes))
    assert (apply_delay(codes, 1024) == theirs.numpy()).all()
    gap = np.full((books, books), 1024)
    rows = np.concatenate([gap, theirs.numpy(), gap, theirs.numpy()])
    wanted = [segment.tolist() for segment in delayed_rows_to_segments(torch.from_numpy(rows))]
    assert [clip.tolist() for clip in split_frames(rows, 1024)] == wanted


def test_the_text_of_a_prompt_is_theirs() -> None:
    from moss_tts_lite import prompt

    assert user_content(text="Hello.", language="English") == prompt._render_user_inst("Hello.", language="English")
    assert user_content(text="Hi", instruction="happiness") == prompt._render_user_inst("Hi", instruction="happiness")
    names = {
        IDS.audio_start: prompt.AUDIO_START_TOKEN,
        IDS.audio_end: prompt.AUDIO_END_TOKEN,
        IDS.gen_slot: prompt.ASSISTANT_GEN_SLOT_TOKEN,
        IDS.delay_slot: prompt.ASSISTANT_DELAY_SLOT_TOKEN,
    }
    for frames in (0, 1, 9):
        slots = audio_slots(frames, BOOKS, IDS, speaker="assistant")
        assert "".join(names[slot] for slot in slots) == prompt._assistant_audio_block(frames)


@pytest.mark.parametrize("books", [1, 3, 16, 32])
@pytest.mark.parametrize("goes_on", [False, True])
def test_the_state_machine_is_theirs_through_random_texts(books: int, goes_on: bool) -> None:
    from moss_tts_lite._fsm import FSM

    generator = random.Random(books)
    for _ in range(20):
        prompt = torch.tensor([5, IDS.audio_start, IDS.gen_slot, IDS.gen_slot] if goes_on else [5, 6, 7])
        theirs = FSM(len(prompt), prompt, books, watchdog=False)
        ours = DelayState.after_prompts([prompt], books, IDS)
        for step in range(4 * books + 12):
            rule = TextRule(int(ours.text_rules()[0]))
            text, is_drawn = theirs.decide()
            assert ours.drawn_codes()[0].tolist() == theirs.mask()
            assert is_drawn == (rule >= TextRule.FIRST_FRAME)
            if is_drawn:
                allowed = required_ids(rule, IDS)
                assert (allowed is not None) == bool(theirs.is_audio)
                text = generator.choice(allowed or (5, 6, IDS.audio_start))
            else:
                assert (text,) == required_ids(rule, IDS)
            theirs.observe(text, step, 0)
            ours = ours.after(torch.tensor([text]), IDS)


def small_config() -> MossTTSDelayConfig:
    return MossTTSDelayConfig(
        language_config={
            "vocab_size": WORDS,
            "hidden_size": 16,
            "intermediate_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "head_dim": 8,
            "rope_theta": 1e6,
        },
        n_vq=BOOKS,
    )


def both_models() -> tuple[MossTTSDelayModel, Any]:
    from moss_tts_lite.model import MossTTSModel

    torch.manual_seed(0)
    ours = MossTTSDelayModel(small_config()).eval()
    with torch.no_grad():
        for parameter in ours.parameters():
            if parameter.ndim == 2:
                parameter.copy_(0.3 * torch.randn(parameter.shape))
    theirs = MossTTSModel(dict(ours.state_dict()), device="cpu", dtype=torch.float32, max_seq_len=256)
    return ours, theirs


def test_logits_of_random_weights_are_theirs() -> None:
    ours, theirs = both_models()
    rows = torch.cat([torch.randint(0, WORDS, (1, 20, 1)), torch.randint(0, 1025, (1, 20, BOOKS))], dim=2)
    text, *codes = ours(rows)
    state = theirs.prefill(rows[:, :15])
    for position in range(14, 20):
        if position > 14:
            state = theirs.step(rows[:, position])
        hidden = state.last_hidden[:, -1]
        torch.testing.assert_close(text[0, position], theirs.text_logits(hidden), rtol=1e-4, atol=1e-4)
        audio = theirs.audio_logits(hidden)
        torch.testing.assert_close(torch.stack([logits[0, position] for logits in codes]), audio, rtol=1e-4, atol=1e-4)


def test_what_they_generate_is_legal_here_and_has_the_same_choices() -> None:
    """Their loop draws; each of its draws is compared with what is allowed here, and its forced cells with ours."""
    from moss_tts_lite import generate as loop

    _, theirs = both_models()
    prompt = torch.full((1, 6, 1 + BOOKS), 1024)
    prompt[..., 0] = torch.arange(6)
    options: dict[str, Any] = {"text_top_k": 0, "audio_top_k": 0, "audio_top_p": 1.0}
    ended = 0
    for seed in range(3):
        drawn = _generate(loop, theirs, prompt, seed, options)
        found = replay(drawn[None, :, 0], BOOKS, IDS)
        is_pad = drawn[:, 1:] == 1024
        assert torch.equal(~is_pad, found.drawn_codes[0])
        for row, rule in enumerate(found.text_rules[0].tolist()):
            text, allowed = int(drawn[row, 0]), required_ids(TextRule(rule), IDS)
            assert text in allowed if allowed else text not in banned_ids(TextRule(rule), IDS)
        ended += int((drawn[:, 0] == IDS.audio_end).any())
    assert ended


def _generate(loop: Any, model: Any, prompt: torch.Tensor, seed: int, options: dict[str, Any]) -> torch.Tensor:
    """Their rows, the text logits bent so that audio starts in row 3 and ends a few frames later."""
    plain = model.text_logits
    steps = iter(range(1000))

    def bent(hidden: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = plain(hidden).clone()
        step = next(steps)
        wanted = IDS.audio_start if step == 3 else IDS.delay_slot if step == 9 + seed else IDS.gen_slot
        logits[wanted] += 1000.0 if step in (3, 9 + seed) or step > 3 else 0.0
        return logits

    model.text_logits = bent
    try:
        result = loop.generate(model, {"input_ids": prompt}, max_new_tokens=60, seed=seed, **options)
    finally:
        model.text_logits = plain
    return torch.cat([result.text_ids[:, None], result.audio_frames], dim=1)
