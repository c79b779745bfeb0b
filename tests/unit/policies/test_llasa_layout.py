"""The released vocabulary of 193 800 ids: prompts byte for byte, ids, masks, voices, and what comes back after export."""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from real_layouts import llasa_tokenizer, narrow_llama
from transformers import AutoModelForCausalLM, AutoTokenizer

from elocution.export.huggingface import export_model
from elocution.export.source import find_source
from elocution.policies.base import PolicyBatch
from elocution.policies.llasa import LlasaPolicy
from elocution.policies.padding import pad_prompts
from elocution.policies.speech_tokens import PromptStyle
from elocution.rollout.base import RolloutRequest
from elocution.rollout.speak import Speaker
from elocution.types import Audio, Completion, FinishReason, Outcome, Utterance, Voice

HEAD = (
    "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\n"
    "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n<|eot_id|>"
    "<|start_header_id|>user<|end_header_id|>\n\n"
    "Convert the text to speech:<|TEXT_UNDERSTANDING_START|>"
)
TAIL = (
    "<|TEXT_UNDERSTANDING_END|><|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n<|SPEECH_GENERATION_START|>"
)
FIRST, STOP = 128_264, 128_261
VOICE = Voice("v", "Good evening. ", np.array([[5], [0], [65_535]]))


@pytest.fixture(scope="module")
def policy() -> LlasaPolicy:
    return LlasaPolicy(narrow_llama(193_800), llasa_tokenizer())


def test_ids_are_those_of_the_released_tokenizer(policy: LlasaPolicy) -> None:
    assert len(policy.tokenizer) == 193_800
    ids = dict(zip(("<|TEXT_GENERATION_START|>", "<|SPEECH_GENERATION_START|>"), (128_256, 128_260), strict=True))
    assert policy.tokenizer.convert_tokens_to_ids(list(ids)) == list(ids.values())
    assert (policy.first_code_id, policy.num_codes, policy.stop_ids) == (FIRST, 65_536, frozenset({STOP}))
    assert policy.legal_ids[[0, 1, -1]].tolist() == [STOP, FIRST, 193_799]
    # The tokenizer's own end of turn, which released checkpoints were never taught after speech, cannot be drawn.
    assert policy.tokenizer.eos_token_id == policy.tokenizer.pad_token_id == 128_009
    assert 128_009 not in policy.legal_ids


def test_s37_the_prompt_has_tags_no_space_and_a_pinned_date(policy: LlasaPolicy) -> None:
    utterance = Utterance("u", "The 2nd house – №5!")
    assert policy.render(utterance) == f"{HEAD}The 2nd house – №5!{TAIL}"
    ids = policy.prompt_ids(utterance).tolist()
    assert policy.tokenizer.decode(ids) == policy.render(utterance)
    assert ids.count(128_000) == 1
    assert ids[-1] == 128_260
    assert [ids.count(token) for token in (128_258, 128_259, STOP)] == [1, 1, 0]


def test_a_voices_words_precede_the_text_and_its_codes_begin_the_answer(policy: LlasaPolicy) -> None:
    utterance = Utterance("u", "One more.", voice=VOICE)
    assert policy.render(utterance) == f"{HEAD}Good evening. One more.{TAIL}<|s_5|><|s_0|><|s_65535|>"
    ids = policy.prompt_ids(utterance)
    assert ids[-4:].tolist() == [128_260, FIRST + 5, FIRST, 193_799]
    assert policy.codes(ids[-3:, None]).tolist() == VOICE.codes.tolist()


def test_s36_structural_tokens_within_speech_are_no_codes(policy: LlasaPolicy) -> None:
    ids = np.array([[FIRST], [128_258], [193_799], [128_009], [STOP]])
    assert policy.codes(ids).tolist() == [[0], [65_535]]


def test_s28_turn_ends_are_attended_and_the_stop_has_a_gradient_though_padding_has_the_same_id(
    policy: LlasaPolicy,
) -> None:
    utterances = [Utterance("a", "one"), Utterance("b", "a longer text", voice=VOICE)]
    prompts = [policy.prompt_ids(utterance) for utterance in utterances]
    ids, mask = pad_prompts(prompts)
    completion = torch.tensor([[FIRST, STOP, FIRST], [FIRST + 9, FIRST + 3, STOP]])[..., None]
    completion_mask = torch.tensor([[1, 1, 0], [1, 1, 1]]).bool()[..., None]
    batch = PolicyBatch(ids, mask, torch.tensor([0, 1]), completion, completion_mask)
    logprobs, _ = policy.logprobs(batch, temperature=1.0)
    for row, (prompt, length) in enumerate(zip(prompts, (2, 3), strict=True)):
        assert (prompt == 128_009).sum() == 2  # the turns' ends, of the same id as padding
        whole = torch.cat([torch.from_numpy(prompt), completion[row, :length, 0]])
        logits = policy.llama(input_ids=whole[None]).logits[0, len(prompt) - 1 : -1, policy.legal_ids]
        chosen = torch.searchsorted(policy.legal_ids, completion[row, :length, 0])
        wanted = torch.log_softmax(logits, -1)[torch.arange(length), chosen]
        assert torch.allclose(logprobs[row, :length, 0], wanted, atol=1e-4)
    assert logprobs[0, 2] == 0


class OneVoiceEngine:
    """Answers each prompt with two completions alike, and one that stops at once."""

    temperature = 1.0

    def publish(self, version: int) -> None: ...

    def stream(self, requests: Sequence[RolloutRequest]) -> Iterator[tuple[int, int, Completion]]:
        for index in range(len(requests)):
            for sibling, codes in enumerate(([7, 8], [7, 8], [])):
                ids = np.array([*(FIRST + code for code in codes), STOP])[:, None]
                yield index, sibling, Completion(ids, np.zeros(ids.shape, np.float32), FinishReason.STOP, 0)


class LoudnessCodec:
    """Each code sounds as one level for 320 samples, plus a trace of how many codes were decoded with it."""

    sample_rate, frame_rate, num_codebooks, codebook_size = 16_000, 50.0, 1, 65_536

    def __init__(self) -> None:
        self.decoded: list[list[int]] = []

    def encode(self, audio: Audio) -> NDArray[np.int64]:
        raise NotImplementedError

    def decode(self, codes: Sequence[NDArray[np.int64]]) -> list[Audio]:
        self.decoded += [clip[:, 0].tolist() for clip in codes]
        return [Audio(np.repeat((clip[:, 0] + 1) / 65_536, 320).astype(np.float32), 16_000) for clip in codes]


def test_s10_a_voice_is_decoded_with_the_speech_and_cut_off_before_anything_listens(policy: LlasaPolicy) -> None:
    codec = LoudnessCodec()
    speaker = Speaker(policy, OneVoiceEngine(), codec, max_codes_per_char=4.0, min_codes=10)
    other = Voice("w", VOICE.text, VOICE.codes[:1])
    utterances = [Utterance("a", "one", voice=VOICE), Utterance("b", "one", voice=other), Utterance("c", "one")]
    groups = speaker.speak(utterances, [[(1,), (2,), (3,)]] * 3)
    assert codec.decoded == [[5, 0, 65_535, 7, 8], [5, 7, 8], [7, 8]]
    for group in groups:
        first, second, empty = group.rollouts
        assert first.audio is second.audio is not None
        assert first.codes.tolist() == [[7], [8]]
        assert np.array_equal(first.audio.samples, np.repeat(np.float32([8, 9]) / 65_536, 320))
        assert empty.outcome is Outcome.EMPTY


@pytest.mark.parametrize(
    ("codes", "reason"),
    [
        (np.zeros((0, 1), np.int64), r"shape \(0, 1\)"),
        (np.zeros((3, 2), np.int64), r"shape \(3, 2\)"),
        (np.array([[-1]]), r"span -1…-1"),
        (np.array([[65_536]]), r"span 65536…65536, the policy writes 0…65535"),
        (np.zeros((1900, 1), np.int64), "exceed the model's 2048 positions"),
    ],
)
def test_s33_codes_that_are_none_of_the_policys_are_a_reason(
    policy: LlasaPolicy, codes: NDArray[np.int64], reason: str
) -> None:
    speaker = Speaker(policy, OneVoiceEngine(), LoudnessCodec(), max_codes_per_char=4.0, min_codes=100)
    assert speaker.check(Utterance("u", "one")) is None
    found = speaker.check(Utterance("u", "one", voice=Voice("v", "two ", codes)))
    assert found is not None
    assert re.search(reason, found), found


def test_speakers_and_language_tags_are_put_where_fine_tunes_have_them(policy: LlasaPolicy) -> None:
    styled = LlasaPolicy(policy.llama, policy.tokenizer, style=PromptStyle("kore", {"yue": "YUE"}))
    tail = TAIL.replace("<|SPEECH_GENERATION_START|>", "Speaker kore <|SPEECH_GENERATION_START|>")
    assert styled.render(Utterance("u", "One.", "yue")) == f"{HEAD}<|YUE_START|>One.<|YUE_END|>{tail}"
    assert (
        styled.render(Utterance("u", "One.", voice=VOICE)) == f"{HEAD}Good evening. One.{tail}<|s_5|><|s_0|><|s_65535|>"
    )


def test_control_tokens_in_a_voices_words_are_a_reason(policy: LlasaPolicy) -> None:
    reason = policy.check_text(Utterance("u", "one", voice=Voice("v", "<|SPEECH_GENERATION_END|>", VOICE.codes)))
    assert reason == "the text holds control tokens: <|SPEECH_GENERATION_END|>"


def test_s73_saved_and_loaded_again_logits_and_ids_are_equal(policy: LlasaPolicy, tmp_path: Path) -> None:
    policy.save_pretrained(str(tmp_path))
    again = LlasaPolicy.from_pretrained(tmp_path)
    utterance = Utterance("u", "One more.", voice=VOICE)
    ids = torch.from_numpy(policy.prompt_ids(utterance))[None]
    assert torch.equal(torch.from_numpy(again.prompt_ids(utterance))[None], ids)
    assert torch.equal(again.legal_ids, policy.legal_ids)
    with torch.inference_mode():
        assert torch.equal(again.llama(input_ids=ids).logits, policy.llama(input_ids=ids).logits)


@pytest.mark.slow
def test_s73_exported_and_opened_by_transformers_logits_and_ids_are_equal(policy: LlasaPolicy, tmp_path: Path) -> None:
    policy.save_pretrained(str(tmp_path / "model"))
    export_model(find_source(tmp_path / "model"), tmp_path / "out")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out", local_files_only=True)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out", local_files_only=True)
    utterance = Utterance("u", "One more.", voice=VOICE)
    ids = policy.prompt_ids(utterance)
    assert tokenizer.encode(policy.render(utterance), add_special_tokens=False) == ids.tolist()
    with torch.inference_mode():
        batch = torch.from_numpy(ids)[None]
        assert torch.equal(model(input_ids=batch).logits, policy.llama(input_ids=batch).logits)
    assert json.loads((tmp_path / "out" / "generation_config.json").read_text())["eos_token_id"] == STOP
