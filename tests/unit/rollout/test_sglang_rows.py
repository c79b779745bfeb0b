"""The multi-channel engine against a scripted server: nothing that SGLang's fork runs can be run here."""

import base64
import io
import json
from pathlib import Path
from typing import Any, cast

import httpx2
import numpy as np
import pytest
import soundfile
import torch
from torch import Tensor

from elocution.errors import ConfigError, DataError, EngineError
from elocution.policies.base import Policy, PolicyBatch
from elocution.rollout.base import RolloutRequest
from elocution.rollout.sglang_answers import decode_answer_audio
from elocution.rollout.sglang_client import ServerSettings, SglangServers
from elocution.rollout.sglang_rows import RowPrompt, SglangRowEngine, rewritten_by_server
from elocution.rollout.sglang_sync import SglangSync
from elocution.types import Audio, FinishReason

SIZES = (8, 5, 5)  # text ids, and two codebooks of four codes and a padding id
PROMPTS = (np.array([1, 2, 3]), np.array([1, 2, 4]))


class PromptPolicy:
    """Every channel is one categorical distribution, which the last id of the prompt chooses."""

    num_channels = 3
    model = torch.nn.Linear(1, 1)

    def table(self, last: int) -> list[Tensor]:
        generator = torch.Generator().manual_seed(last)
        return [torch.randn(size, generator=generator).mul(6).log_softmax(-1) for size in SIZES]

    def logprobs(self, batch: PolicyBatch, *, temperature: float, entropy_grad: bool = False) -> tuple[Tensor, Tensor]:
        found = torch.zeros(batch.completion_ids.shape)
        for row, prompt in enumerate(batch.row_prompt.tolist()):
            for channel, logprobs in enumerate(self.table(int(batch.prompt_ids[prompt, -1]))):
                found[row, :, channel] = logprobs[batch.completion_ids[row, :, channel]]
        return found * batch.completion_mask, found

    def draw(self, last: int, count: int, generator: torch.Generator) -> list[list[int]]:
        columns = [torch.multinomial(t.exp(), count, replacement=True, generator=generator) for t in self.table(last)]
        return torch.stack(columns, dim=1).tolist()


def wav(samples: int) -> str:
    buffer = io.BytesIO()
    soundfile.write(buffer, np.full(samples, 0.1, dtype=np.float32), 24000, format="WAV")
    return base64.b64encode(buffer.getvalue()).decode()


class RowServer:
    def __init__(self) -> None:
        self.version = "0"
        self.path = ""
        self.bodies: list[dict[str, Any]] = []
        self.change: Any = lambda answer: answer
        self.generator = torch.Generator().manual_seed(0)
        self.rows = 12

    async def handle(self, request: httpx2.Request) -> httpx2.Response:
        body = json.loads(request.content) if request.content else {}
        path = request.url.path
        if path == "/update_weights_from_disk":
            self.version, self.path = body["weight_version"], body["model_path"]
        if path != "/generate":
            state = {"model_path": self.path, "weight_version": self.version, "success": True}
            return httpx2.Response(200, json=state)
        self.bodies.append(body)
        info = {"id": body["rid"], "prompt_tokens": 90, "completion_tokens": self.rows, "weight_version": self.version}
        answer = {
            "text": "  " + wav(4800),
            "output_ids": PromptPolicy().draw(int(body["text"]), self.rows, self.generator),
            "meta_info": info | {"finish_reason": {"type": "stop", "matched": 7}},
        }
        return httpx2.Response(200, json=self.change(answer))


def build(server: RowServer, folder: Path, *, kind: Any = "weights", **changed: Any) -> SglangRowEngine:
    options: dict[str, Any] = {
        "channel_sizes": SIZES,
        "probes": [RolloutRequest(prompt, ((0,),), 20) for prompt in PROMPTS],
    }
    servers = SglangServers(ServerSettings(("http://a",)), transport=httpx2.MockTransport(server.handle))
    return SglangRowEngine(
        cast(Policy, PromptPolicy()),
        servers,
        SglangSync(servers, folder, lambda path: None, kind=kind),
        temperature=1.0,
        render=lambda request: RowPrompt(str(request.prompt_ids[-1])),
        **(options | changed),
    )


@pytest.fixture
def server() -> RowServer:
    return RowServer()


@pytest.fixture
def engine(server: RowServer, tmp_path: Path) -> SglangRowEngine:
    made = build(server, tmp_path)
    made.publish(2)
    server.bodies.clear()
    return made


def one(seeds: int = 1, max_new: int = 20) -> list[RolloutRequest]:
    return [RolloutRequest(PROMPTS[0], tuple((index,) for index in range(seeds)), max_new)]


def test_rows_are_the_sampled_ids_with_the_policys_logprobs(engine: SglangRowEngine) -> None:
    ((first, second),) = engine.generate(one(seeds=2))
    assert first.ids.shape == first.rollout_logprobs.shape == (12, 3)
    assert (first.ids != second.ids).any()
    tables = PromptPolicy().table(3)
    expected = [[float(tables[c][i]) for c, i in enumerate(row)] for row in first.ids.tolist()]
    np.testing.assert_allclose(first.rollout_logprobs, expected, atol=1e-6)
    assert first.policy_version == 2
    assert first.finish_reason is FinishReason.STOP


def test_the_request_is_what_the_fork_reads_and_no_more(engine: SglangRowEngine, server: RowServer) -> None:
    engine.generate(one())
    (body,) = server.bodies
    # No log-probs (they end the fork's scheduler), and a budget of which each channel's extra row is taken off.
    assert body.keys() == {"rid", "text", "sampling_params", "stream"}
    assert body["sampling_params"]["max_new_tokens"] == 17
    assert body["sampling_params"]["top_k"] == -1


def test_a_runaway_has_used_up_its_budget(engine: SglangRowEngine, server: RowServer) -> None:
    server.rows = 20
    server.change = lambda a: a | {"meta_info": a["meta_info"] | {"finish_reason": {"type": "length", "length": 20}}}
    assert engine.generate(one())[0][0].finish_reason is FinishReason.LENGTH


def test_more_rows_than_asked_for_are_an_error(engine: SglangRowEngine, server: RowServer) -> None:
    server.rows = 21
    with pytest.raises(EngineError, match="drew 21 rows, asked were at most 20"):
        engine.generate(one())


def test_a_budget_that_only_ends_a_clip_is_refused(engine: SglangRowEngine) -> None:
    with pytest.raises(EngineError, match=r"budget of 3 rows is too small.*rollout\.min_codes"):
        engine.generate(one(max_new=3))


def test_a_clip_of_one_sample_is_a_failure_that_is_counted(engine: SglangRowEngine, server: RowServer) -> None:
    server.change = lambda a: a | {"text": wav(1), "output_ids": [[7, 4, 4]] * 5}
    ((completion,),) = engine.generate(one())
    assert completion.ids.tolist() == [[7, 4, 4]] * 5
    assert engine.metrics()["engine/no_audio"] == engine.metrics()["engine/text_only"] == 1


def test_a_clip_beside_rows_without_a_code_is_someone_elses(engine: SglangRowEngine, server: RowServer) -> None:
    server.change = lambda a: a | {"output_ids": [[7, 4, 4]] * 5}
    with pytest.raises(EngineError, match="answers are crossed"):
        engine.generate(one())


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([[1, 2]], r"rows of \[2\] ids where the policy has 3 channels"),
        ([1, 2], "--delay-pattern"),
        ([[1, 5, 0]], "id 5 in channel 1, which has the ids 0 to 4"),
        ([[1, -1, 0]], "id -1 in channel 1"),
    ],
)
def test_rows_that_cannot_be_are_an_error(engine: SglangRowEngine, server: RowServer, ids: Any, message: str) -> None:
    server.change = lambda a: a | {"output_ids": ids}
    with pytest.raises(EngineError, match=message):
        engine.generate(one())


def test_stale_rows_are_an_error(engine: SglangRowEngine, server: RowServer) -> None:
    server.version = "1"
    with pytest.raises(EngineError, match="version 2 was published"):
        engine.generate(one())


def test_answers_that_are_crossed_stop_the_first_publish(server: RowServer, tmp_path: Path) -> None:
    wrong = {"3": 4, "4": 3}
    server.change = lambda a: (
        a | {"output_ids": PromptPolicy().draw(wrong[server.bodies[-1]["text"]], 12, server.generator)}
    )
    engine = build(server, tmp_path)
    with pytest.raises(EngineError, match="the answer to probe 0 fits probe 1"):
        engine.publish(0)
    with pytest.raises(EngineError, match="no weights have been published"):
        engine.generate(one())


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"channel_sizes": (8, 5)}, "2 channel sizes do not fit"),
        ({"kind": "adapter"}, "whole weights only"),
        ({"probes": []}, "at least two probes"),
    ],
)
def test_what_the_fork_cannot_do_is_refused_before_anything_is_drawn(
    server: RowServer, tmp_path: Path, changed: Any, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        build(server, tmp_path, **changed)


def test_tags_stand_in_the_order_that_the_fork_reads() -> None:
    prompt = RowPrompt("Hello there.", instruction="happiness", frames=25)
    assert prompt.tagged_text() == "${token:25}${instruction:happiness}Hello there."
    assert RowPrompt("Hello there.").tagged_text() == "Hello there."


def test_a_brace_in_an_instruction_would_end_its_tag() -> None:
    with pytest.raises(DataError, match="brace"):
        RowPrompt("Hello.", instruction="sad } and loud").tagged_text()


@pytest.mark.parametrize(
    "text",
    ["a well-known fact", 'he said "no"', "first: second", "one;two", "haha yes", "哈哈", "wait,", "[1] hi", "a\nb"],
)
def test_texts_that_the_server_would_rewrite_are_found(text: str) -> None:
    assert rewritten_by_server(text) is not None
    with pytest.raises(DataError, match="normalise the text"):
        RowPrompt(text).tagged_text()


@pytest.mark.parametrize("text", ["It's fine, thank you.", "Shahar has one.", "你好，世界。", "[laugh] right"])
def test_texts_that_the_server_leaves_alone_pass(text: str) -> None:
    assert rewritten_by_server(text) is None


def test_a_text_that_begins_like_a_tag_is_found() -> None:
    assert "tag" in str(rewritten_by_server("${token} is what I said"))


def test_the_voice_goes_as_a_data_uri_that_keeps_its_samples() -> None:
    voice = Audio(np.array([0.5, -0.25, 1.5], dtype=np.float32), 16000)
    (sent,) = RowPrompt("Hello.", voice=voice).audio_data() or ()
    prefix, _, content = sent.partition(",")
    samples, rate = soundfile.read(io.BytesIO(base64.b64decode(content)), dtype="float32")
    assert (prefix, rate, samples.tolist()) == ("data:audio/wav;base64", 16000, [0.5, -0.25, 1.5])


def test_blanks_before_the_base64_are_skipped() -> None:
    audio = decode_answer_audio(" \n " + wav(480))
    assert audio is not None
    assert (len(audio.samples), audio.sample_rate) == (480, 24000)


@pytest.mark.parametrize("text", ["", "not base64!", base64.b64encode(b"no sound").decode()])
def test_what_is_no_clip_is_an_error(text: str) -> None:
    with pytest.raises(EngineError, match="no sound in base64"):
        decode_answer_audio(text)
