"""The TTS server with a model of several channels: rows in and out, greedy draws, texts with instructions, bad requests."""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
from starlette.testclient import TestClient

from elocution.codecs.mel import MelSettings
from elocution.codecs.tiny_residual import TinyResidualCodec
from elocution.rollout.agreement import score_completions
from elocution.rollout.sync.base import Probe
from elocution.rollout.sync.probes import greedy_ids
from elocution.serve.tts_app import build_app
from elocution.serve.tts_server import TtsSettings, tts_service
from elocution.testing.policies import small_moss
from elocution.types import Utterance

POLICY = small_moss()
TEXT = "mary painted the house"
PROMPT = POLICY.prompt_ids(Utterance("u", TEXT))


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    folder = tmp_path_factory.mktemp("moss")
    POLICY.save_pretrained(str(folder / "moss"))
    books = 0.5 * torch.randn(4, 16, 640, generator=torch.Generator().manual_seed(0))
    TinyResidualCodec(books, MelSettings(frames_per_code=8)).save_pretrained(folder / "codec")
    settings = TtsSettings(
        model=str(folder / "moss"), family="moss", codec="tiny-residual", codec_path=str(folder / "codec")
    )
    with tts_service(settings) as service, TestClient(build_app(service)) as client:
        yield client


def body(**sampling: Any) -> dict[str, Any]:
    params = {"max_new_tokens": 30, "temperature": 0.8, "sampling_seed": 3} | sampling
    return {
        "input_ids": PROMPT.tolist(),
        "multi_channel": True,
        "sampling_params": params,
        "return_row_logprobs": True,
        "return_prompt_token_ids": True,
    }


def test_s44_s47_rows_are_legal_and_their_logprobs_those_of_the_policy(client: TestClient) -> None:
    answers = client.post("/generate", json=body(n=8)).json()
    rows = [np.array(answer["output_ids"]) for answer in answers]
    assert len({row.tobytes() for row in rows}) == 8
    own = score_completions(POLICY, [PROMPT] * 8, rows, temperature=0.8)
    for answer, row, logprobs in zip(answers, rows, own, strict=True):
        assert not POLICY.illegal_cells(row).any()
        np.testing.assert_allclose(answer["meta_info"]["row_logprobs"], logprobs, atol=1e-4)
        assert answer["prompt_token_ids"] == PROMPT.tolist()
        assert answer["meta_info"]["prompt_tokens"] == len(PROMPT)
        is_stopped = answer["meta_info"]["finish_reason"]["type"] == "stop"
        assert is_stopped == (int(row[-1, 0]) in POLICY.stop_ids)
        # As in the fork, a row for each channel comes on top of the budget.
        assert is_stopped or len(row) == 30 + 5


def test_at_temperature_0_the_most_probable_rows_are_drawn(client: TestClient) -> None:
    answer = client.post("/generate", json=body(temperature=0)).json()
    (own,) = greedy_ids(POLICY, [Probe(PROMPT, np.zeros((35, 5), np.int64))])
    assert answer["output_ids"] == own.tolist()


def test_a_text_is_rendered_as_the_family_does_with_its_instruction(client: TestClient) -> None:
    asked = {"text": "${instruction:three}" + TEXT, "sampling_params": body()["sampling_params"]}
    answer = client.post("/generate", json=asked | {"return_prompt_token_ids": True}).json()
    own = POLICY.prompt_ids(Utterance("u", TEXT, instruction="three"))
    assert answer["prompt_token_ids"] == own.tolist()


def test_openais_speech_route_and_the_health_route_draw_rows_too(client: TestClient) -> None:
    assert client.get("/health_generate").status_code == 200
    spoken = [
        client.post("/v1/audio/speech", json={"input": TEXT, "seed": seed, "temperature": 1.0}) for seed in range(24)
    ]
    assert {answer.status_code for answer in spoken} <= {200, 500}
    clips = [answer.content for answer in spoken if answer.status_code == 200]
    assert clips
    assert soundfile.read(io.BytesIO(clips[0]))[1] == 16_000
    assert all(answer.json()["kind"] == "no_speech" for answer in spoken if answer.status_code == 500)


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"multi_channel": None}, "wrong_channels"),
        ({"input_ids": [1, 2, 3]}, "wrong_channels"),
        ({"input_ids": []}, "wrong_channels"),
        ({"input_ids": [[1, 2]]}, "wrong_channels"),
        ({"input_ids": [[1, 17, 0, 0, 0]]}, "id_out_of_range"),
        ({"input_ids": [[1, -1, 0, 0, 0]]}, "id_out_of_range"),
        ({"return_logprob": True}, "unsupported"),
        ({"custom_logit_processor": "x"}, "unknown_processor"),
        ({"sampling_params": {"repetition_penalty": 1.1}}, "unsupported_sampling"),
    ],
)
def test_a_bad_request_is_named(client: TestClient, change: dict[str, Any], kind: str) -> None:
    answer = client.post("/generate", json=body() | change)
    assert (answer.status_code, answer.json()["kind"]) == (400, kind), answer.text


def test_weights_of_another_number_of_codebooks_are_refused(client: TestClient, tmp_path: Path) -> None:
    small_moss(num_codebooks=3).save_pretrained(str(tmp_path))
    answer = client.post("/update_weights_from_disk", json={"model_path": str(tmp_path), "weight_version": "1"})
    assert (answer.status_code, answer.json()["success"]) == (400, False)
    assert "other speech ids" in answer.json()["message"]
