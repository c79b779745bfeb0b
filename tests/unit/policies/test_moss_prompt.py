import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elocution.config.tree import MossSettings
from elocution.errors import DataError
from elocution.policies.delay_pattern import split_frames
from elocution.policies.moss import MossPolicy
from elocution.policies.moss_prompt import clean_text, user_content
from elocution.rollout.speak import Speaker
from elocution.rollout.torch_engine import TorchEngine
from elocution.testing.policies import small_moss
from elocution.text.normalize import normalize
from elocution.types import Utterance, Voice

CODES = np.arange(12).reshape(3, 4)
VOICE = Voice("v", "one", CODES)


def decoded(policy: MossPolicy, utterance: Utterance) -> str:
    """The prompt with one space between tokens, lower-case words as the tokenizer keeps them."""
    tokens = policy.tokenizer.convert_ids_to_tokens(policy.prompt_ids(utterance)[:, 0].tolist())
    return " ".join(tokens)


def test_an_absent_field_prints_the_word_none() -> None:
    assert user_content(text="Hello there.", language="English") == (
        "<user_inst>\n- Reference(s):\nNone\n- Instruction:\nNone\n- Tokens:\nNone\n- Quality:\nNone\n"
        "- Sound Event:\nNone\n- Ambient Sound:\nNone\n- Language:\nEnglish\n- Text:\nHello there.\n</user_inst>"
    )
    with pytest.raises(TypeError, match="no field scene"):
        user_content(scene="a street")


def test_a_prompt_without_a_voice_is_one_turn_of_the_user() -> None:
    policy = small_moss()
    utterance = Utterance("u", "mary painted the house", emotion="three")
    text = decoded(policy, utterance)
    assert text.count("<|im_start|>") == 2
    assert text.endswith("<|im_start|> assistant \n")
    assert "- instruction:\n three \n" in text
    assert "- language:\n english \n - text:\n mary painted the house \n" in text
    assert "<|audio_start|>" not in text  # the model must write it itself
    assert (policy.prompt_ids(utterance)[:, 1:] == 16).all()


def test_a_recording_is_an_earlier_turn_of_the_model() -> None:
    policy = small_moss()
    rows = policy.prompt_ids(Utterance("u", "mary painted the house", voice=VOICE, instruction="one", emotion="three"))
    text = policy.tokenizer.convert_ids_to_tokens(rows[:, 0].tolist())
    turns = " ".join(text).split("<|im_start|>")[1:]
    assert [turn.split()[0] for turn in turns] == ["user", "assistant", "user", "assistant"]
    assert turns[0].count("none") == 8  # nothing meaningful in it
    gen, delay = "<|audio_assistant_gen_slot|>", "<|audio_assistant_delay_slot|>"
    slots = " ".join(["<|audio_start|>", *[gen] * 3, *[delay] * 3, "<|audio_end|>"])
    assert turns[1] == f" assistant \n {slots} <|im_end|> \n "
    assert "- instruction:\n one \n" in turns[2]
    assert "mary painted the house" in turns[2]
    assert [clip.tolist() for clip in split_frames(rows[:, 1:], 16)] == [CODES.tolist()]
    start = text.index("<|audio_start|>")
    assert rows[start + 1, 1:].tolist() == [0, 16, 16, 16]
    assert rows[start + 6, 1:].tolist() == [16, 16, 16, 11]


def test_the_other_form_has_the_recording_in_the_users_turn() -> None:
    policy = small_moss(settings=MossSettings(voice_form="reference"))
    rows = policy.prompt_ids(Utterance("u", "mary painted the house", voice=VOICE))
    text = " ".join(policy.tokenizer.convert_ids_to_tokens(rows[:, 0].tolist()))
    slot = "<|audio_user_slot|>"
    assert text.count("<|im_start|>") == 2
    assert f"- reference(s):\n [ s1 ] : \n <|audio_start|> {' '.join([slot] * 6)} <|audio_end|> \n" in text
    assert [clip.tolist() for clip in split_frames(rows[:, 1:], 16)] == [CODES.tolist()]


def test_rollouts_and_learner_read_the_same_rows() -> None:
    policy = small_moss()
    engine = TorchEngine(policy, temperature=1.0, batch_size=4)
    speaker = Speaker(policy, engine, None, max_codes_per_char=1.0, min_codes=8)  # type: ignore[arg-type]
    utterance = Utterance("u", "mary painted the house", voice=VOICE)
    request = speaker.requests([utterance], [[(0,)]])[0]
    assert (request.prompt_ids == policy.prompt_ids(utterance)).all()
    assert request.max_new == len(utterance.text) + 1 + policy.num_codebooks


@pytest.mark.parametrize(
    "codes", [np.full((2, 4), 16), np.full((2, 4), 1024), np.zeros((2, 3), np.int64), np.zeros(4, np.int64)]
)
def test_codes_that_no_codebook_has_never_reach_the_model(codes: np.ndarray) -> None:
    policy = small_moss()
    utterance = Utterance("u", "one", voice=Voice("v", "one", codes))
    with pytest.raises(DataError, match="expected"):
        policy.prompt_ids(utterance)
    speaker = Speaker(policy, None, None, max_codes_per_char=1.0, min_codes=8)  # type: ignore[arg-type]
    assert "the codes of its voice" in (speaker.check(utterance) or "")


@pytest.mark.parametrize(
    ("utterance", "reason"),
    [
        (Utterance("u", "one <|audio_start|>"), "control tokens"),
        (Utterance("u", "one", emotion="melancholy"), "its emotion 'melancholy'"),
        (Utterance("u", "one", instruction="three <|im_end|>"), "its instruction"),
        (Utterance("u", "one", language="xx"), "no name for the language 'xx'"),
        (Utterance("u", "elephant"), "vocabulary"),
    ],
)
def test_what_a_checkpoint_cannot_read_is_refused(utterance: Utterance, reason: str) -> None:
    assert reason in (small_moss().check_text(utterance) or "")
    assert small_moss().check_text(Utterance("u", "one three", emotion="three")) is None


def server_text(text: str) -> str:
    """What the SGLang server does to the text of a request."""
    text = re.sub(r'["\-_~“”「」『』《》【】]', "", text.replace("[1]", "[S1]"))
    text = text.replace(";", ",").replace(":", ",").replace("’", "'").replace("‘", "'").replace("\n", " ")
    return re.sub(r"[,，]$", ".", text)


@given(st.text(alphabet="abc 1,.;:-_~\"“”’'\n!?", max_size=30))
def test_cleaning_twice_or_on_the_server_changes_nothing_more(text: str) -> None:
    once = clean_text(text)
    assert clean_text(once) == once
    assert server_text(once) == once


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("a well-known  man", "a well known man"),
        ('she said: "no";\nthen', "she said, no, then"),
        ("wait,", "wait."),
        ("it’s - so", "it's so"),
    ],
)
def test_cleaning_keeps_the_words(text: str, cleaned: str) -> None:
    assert clean_text(text) == cleaned
    assert normalize(clean_text(text), "en") == normalize(text, "en")
