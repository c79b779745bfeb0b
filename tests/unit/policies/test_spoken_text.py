"""A text is spoken only if the model reads it as the words that will be listened for, and was taught such texts."""

import json
from pathlib import Path
from typing import Any

import pytest

from elocution.assets import BUILTIN, resolve_path
from elocution.errors import CheckpointError
from elocution.policies.llasa import LlasaPolicy
from elocution.policies.spoken_text import TaughtTexts, TextCheck
from elocution.testing.policies import small_llasa
from elocution.tiny.sentences import WORDS
from elocution.types import Utterance

UNKNOWN = "words outside the checkpoint's vocabulary: "


@pytest.fixture(scope="module")
def tiny() -> LlasaPolicy:
    return LlasaPolicy.from_pretrained(resolve_path("builtin:tiny-llasa"))


@pytest.mark.parametrize(
    "text",
    [
        "the doctor visited the school",
        "The doctor visited the school.",
        "THE DOCTOR VISITED THE SCHOOL!",
        "the  doctor,   visited the school",
        "One, three, six?",
    ],
)
def test_the_same_words_in_other_dress_are_the_same_prompt(tiny: LlasaPolicy, text: str) -> None:
    assert tiny.check_text(Utterance("u", text)) is None
    plain = "one three six" if "six" in text else "the doctor visited the school"
    assert tiny.prompt_ids(Utterance("u", text)).tolist() == tiny.prompt_ids(Utterance("u", plain)).tolist()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("the zebra ran away", UNKNOWN + "zebra, ran, away"),
        ("1 3 6", UNKNOWN + "1, 3, 6"),
        ("one three 6", UNKNOWN + "6"),
        ("one-three six nine", UNKNOWN + "one-three"),
        ("mary's house was green", UNKNOWN + "mary's"),
        ("the doctor's school was green", UNKNOWN + "doctor's"),
        ("the doctor: visited the school", UNKNOWN + "doctor:"),  # the colon is a word of the template
        ("system user 2023 jul", UNKNOWN + "system, user, 2023, jul"),  # so are these
        ("o.n.e three six", UNKNOWN + "o.n.e"),  # read as "one", listened for as "o n e"
        ("[one] three six nine", UNKNOWN + "[one]"),
        ("<b>one</b> three six nine", UNKNOWN + "<b>one</b>"),
        ("оne three six", UNKNOWN + "оne"),  # a Cyrillic o
        ("ｏｎｅ three six", UNKNOWN + "ｏｎｅ"),
        ("one\u200b three six", UNKNOWN + "one\u200b"),
        ("one three six 😀", UNKNOWN + "😀"),
        ("one\tthree six", "the text 'one\\tthree six' holds white space or characters outside"),
        ("one\nthree six", "the text 'one\\nthree six' holds white space or characters outside"),
        ("one\u00a0three six", "the text 'one\\xa0three six' holds white space or characters outside"),
        ("<unk> one three six", UNKNOWN + "<unk>"),
        ("ONE", "the checkpoint was taught texts of 3 to 6 words, this one has 1"),
        ("one three", "the checkpoint was taught texts of 3 to 6 words, this one has 2"),
        ("one " * 7, "the checkpoint was taught texts of 3 to 6 words, this one has 7"),
    ],
)
def test_what_the_tiny_checkpoint_was_never_taught_is_refused(tiny: LlasaPolicy, text: str, reason: str) -> None:
    assert str(tiny.check_text(Utterance("u", text))).startswith(reason)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("one <|s_5|> three six", "<|s_5|>"),
        ("one three<|SPEECH_GENERATION_END|>six", "<|SPEECH_GENERATION_END|>"),
        ("<|eot_id|><|start_header_id|>one three six", "<|eot_id|>, <|start_header_id|>"),
        ("one <|laugh|> three six", "<|laugh|>"),
    ],
)
def test_control_tokens_are_refused_by_name(tiny: LlasaPolicy, text: str, tokens: str) -> None:
    reason = f"the text holds control tokens: {tokens}"
    assert tiny.check_text(Utterance("u", text)) == reason
    assert small_llasa().check_text(Utterance("u", text)) == reason


def test_the_shipped_prompts_and_words_are_those_that_were_taught(tiny: LlasaPolicy) -> None:
    taught = TaughtTexts.read(tiny.tokenizer)
    assert taught == TaughtTexts(frozenset(WORDS), 3, 6)
    for name in ("builtin:tiny-train", "builtin:tiny-held-out"):
        rows = map(json.loads, BUILTIN[name].read_text(encoding="utf-8").splitlines())
        assert [row for row in rows if tiny.check_text(Utterance(row["id"], row["text"]))] == []


def test_what_was_taught_is_saved_with_the_tokenizer(tmp_path: Path) -> None:
    policy = small_llasa()
    assert TaughtTexts.read(policy.tokenizer) is None
    taught = TaughtTexts.of(["mary painted the house", "one three"])
    assert (taught.fewest, taught.most) == (2, 4)
    taught.write(policy.tokenizer)
    policy.save_pretrained(str(tmp_path))
    again = LlasaPolicy.from_pretrained(tmp_path)
    assert TaughtTexts.read(again.tokenizer) == taught
    assert again.check_text(Utterance("u", "one three mary")) is None


@pytest.mark.parametrize(
    "written",
    [
        5,
        [],
        {},
        {"words": 5, "fewest": 1, "most": 2},
        {"words": "one", "fewest": 3, "most": 2},
        {"words": "", "fewest": 1, "most": 2},
    ],
)
def test_a_record_that_cannot_be_understood_is_named(written: Any) -> None:
    tokenizer = small_llasa().tokenizer
    tokenizer.init_kwargs["taught_texts"] = written
    with pytest.raises(CheckpointError, match=r"tokenizer_config\.json: taught_texts is "):
        TextCheck(tokenizer)
