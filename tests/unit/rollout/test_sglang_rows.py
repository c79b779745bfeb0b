"""Rows on SGLang's wire: what is asked for, and what is made of answers. Rows are drawn from a small MOSS checkpoint."""

import base64
import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import soundfile
from numpy.typing import NDArray

from elocution.errors import EngineError
from elocution.policies.moss import MossPolicy
from elocution.rollout.base import RolloutRequest
from elocution.rollout.sglang_answers import decode_answer_audio
from elocution.rollout.sglang_protocol import GenerateResponse
from elocution.rollout.sglang_rows import RowWire
from elocution.rollout.torch_engine import TorchEngine
from elocution.testing.policies import small_moss
from elocution.types import Completion, FinishReason, Utterance

BUDGET = 40


@pytest.fixture(scope="module")
def policy() -> MossPolicy:
    return small_moss()


@pytest.fixture(scope="module")
def request_(policy: MossPolicy) -> RolloutRequest:
    return RolloutRequest(policy.prompt_ids(Utterance("u", "mary painted the house")), ((0,),), BUDGET)


@pytest.fixture(scope="module")
def drawn(policy: MossPolicy, request_: RolloutRequest) -> list[Completion]:
    engine = TorchEngine(policy, temperature=1.0, batch_size=64)
    engine.publish(0)
    (group,) = engine.generate([RolloutRequest(request_.prompt_ids, tuple((seed,) for seed in range(64)), BUDGET)])
    return group


def clip(drawn: list[Completion], policy: MossPolicy) -> Completion:
    """One with codes, which ends by itself."""
    return next(c for c in drawn if len(policy.codes(c.ids)) and c.finish_reason is FinishReason.STOP)


def wav(samples: int) -> str:
    buffer = io.BytesIO()
    soundfile.write(buffer, np.full(samples, 0.1, dtype=np.float32), 24000, format="WAV")
    return base64.b64encode(buffer.getvalue()).decode()


def answer(rows: NDArray[np.int64] | list[Any], prompt_rows: int, *, text: str = "", **meta: Any) -> GenerateResponse:
    ids = rows if isinstance(rows, list) else rows.tolist()
    info: dict[str, Any] = {
        "id": "r",
        "finish_reason": {"type": "stop", "matched": 7},
        "prompt_tokens": prompt_rows,
        "completion_tokens": len(ids),
        "weight_version": "2",
    }
    return GenerateResponse.model_validate({"output_ids": ids, "text": text, "meta_info": info | meta})


def test_the_request_is_what_the_fork_reads_and_what_our_server_adds(
    policy: MossPolicy, request_: RolloutRequest
) -> None:
    sent = RowWire(policy).request(request_.prompt_ids, BUDGET, seed=5, temperature=0.5).to_wire()
    assert sent["input_ids"] == request_.prompt_ids.tolist()
    # No log-probs (they end the fork's scheduler), and a budget of which each channel's extra row is taken off.
    assert sent.keys() == {
        *("rid", "input_ids", "multi_channel", "sampling_params", "stream"),
        *("return_prompt_token_ids", "return_row_logprobs"),
    }
    params = sent["sampling_params"]
    assert (params["max_new_tokens"], params["temperature"]) == (BUDGET - 5, 0.5)
    assert (params["top_p"], params["top_k"], params["repetition_penalty"]) == (1.0, -1, 1.0)


def test_a_budget_that_only_ends_a_clip_is_refused(policy: MossPolicy, request_: RolloutRequest) -> None:
    with pytest.raises(EngineError, match=r"budget of 5 rows is too small.*rollout\.min_codes"):
        RowWire(policy).request(request_.prompt_ids, 5, seed=0, temperature=1.0)


def test_rows_are_taken_as_they_were_sampled(
    policy: MossPolicy, request_: RolloutRequest, drawn: list[Completion]
) -> None:
    own = clip(drawn, policy)
    found = RowWire(policy).read(
        answer(own.ids, len(request_.prompt_ids), row_logprobs=own.rollout_logprobs.tolist()), request_
    )
    assert np.array_equal(found.ids, own.ids)
    assert np.array_equal(found.logprobs, own.rollout_logprobs)  # type: ignore[arg-type]  # there are some
    assert found.finish_reason is FinishReason.STOP
    assert not policy.illegal_cells(found.ids).any()


def test_a_server_that_gives_no_logprobs_is_no_error(
    policy: MossPolicy, request_: RolloutRequest, drawn: list[Completion]
) -> None:
    found = RowWire(policy).read(answer(drawn[0].ids, len(request_.prompt_ids)), request_)
    assert found.logprobs is None


def test_text_that_goes_on_behind_the_end_of_the_turn_is_cut_off(
    policy: MossPolicy, request_: RolloutRequest, drawn: list[Completion]
) -> None:
    row = np.full((1, 5), policy.slots.pad_code)
    end, more = row.copy(), row.copy()
    end[0, 0], more[0, 0] = policy.slots.im_end, 3
    rows = np.concatenate([more] * 6 + [end] + [more] * (BUDGET - 7))
    wire = RowWire(policy)
    length = {"type": "length", "length": BUDGET}
    found = wire.read(answer(rows, len(request_.prompt_ids), finish_reason=length), request_)
    assert len(found.ids) == 7
    assert found.finish_reason is FinishReason.STOP
    assert not policy.illegal_cells(found.ids).any()
    assert wire.text_only == 1


def test_a_runaway_has_used_up_its_budget(policy: MossPolicy, request_: RolloutRequest) -> None:
    rows = np.full((BUDGET, 5), policy.slots.pad_code)
    rows[:, 0] = 3
    length = {"type": "length", "length": BUDGET}
    found = RowWire(policy).read(answer(rows, len(request_.prompt_ids), finish_reason=length), request_)
    assert found.finish_reason is FinishReason.LENGTH
    with pytest.raises(EngineError, match="drew 41 rows, asked were at most 40"):
        RowWire(policy).read(answer(np.concatenate([rows, rows[:1]]), len(request_.prompt_ids)), request_)


def test_a_clip_of_one_sample_is_a_failure_that_is_counted(
    policy: MossPolicy, request_: RolloutRequest, drawn: list[Completion]
) -> None:
    wire = RowWire(policy)
    wire.read(answer(drawn[0].ids, len(request_.prompt_ids), text="  " + wav(1)), request_)
    assert wire.no_audio == 1
    wire.read(answer(clip(drawn, policy).ids, len(request_.prompt_ids), text=wav(4800)), request_)
    assert wire.no_audio == 1


def test_a_clip_beside_rows_without_a_code_is_someone_elses(policy: MossPolicy, request_: RolloutRequest) -> None:
    rows = np.full((6, 5), policy.slots.pad_code)
    with pytest.raises(EngineError, match="answers are crossed"):
        RowWire(policy).read(answer(rows, len(request_.prompt_ids), text=wav(4800)), request_)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([[1, 2]], r"rows of \[2\] ids where the policy has 5 channels"),
        ([1, 2], "--delay-pattern"),
        ([[1, 17, 0, 0, 0]], "id 17 in channel 1, which has the ids 0 to 16"),
        ([[1, -1, 0, 0, 0]], "id -1 in channel 1"),
    ],
)
def test_rows_that_cannot_be_are_an_error(
    policy: MossPolicy, request_: RolloutRequest, ids: list[Any], message: str
) -> None:
    with pytest.raises(EngineError, match=message):
        RowWire(policy).read(answer(ids, len(request_.prompt_ids)), request_)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a: a.model_copy(update={"prompt_token_ids": [[1] * 5]}), "answers are crossed"),
        (
            lambda a: a.model_copy(update={"meta_info": a.meta_info.model_copy(update={"prompt_tokens": 3})}),
            "answered a prompt of 3 ids",
        ),
        (
            lambda a: a.model_copy(update={"meta_info": a.meta_info.model_copy(update={"row_logprobs": [[0.0]]})}),
            "log-probs of shape",
        ),
    ],
)
def test_answers_to_another_prompt_or_with_others_logprobs_are_an_error(
    policy: MossPolicy,
    request_: RolloutRequest,
    drawn: list[Completion],
    change: Callable[[GenerateResponse], GenerateResponse],
    message: str,
) -> None:
    with pytest.raises(EngineError, match=message):
        RowWire(policy).read(change(answer(drawn[0].ids, len(request_.prompt_ids))), request_)


def test_blanks_before_the_base64_are_skipped() -> None:
    audio = decode_answer_audio(" \n " + wav(480))
    assert audio is not None
    assert (len(audio.samples), audio.sample_rate) == (480, 24000)


@pytest.mark.parametrize("text", ["", "not base64!", base64.b64encode(b"no sound").decode()])
def test_what_is_no_clip_is_an_error(text: str) -> None:
    with pytest.raises(EngineError, match="no sound in base64"):
        decode_answer_audio(text)
