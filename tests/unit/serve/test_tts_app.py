"""The TTS server in-process, with the tiny checkpoint and codec: answers, limits, bad requests, other weights."""

import base64
import io
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest
import soundfile
import torch
from starlette.testclient import TestClient

from elocution.assets import resolve_path
from elocution.audio import read_audio
from elocution.codecs import load_codec
from elocution.policies.llasa import LlasaPolicy
from elocution.policies.lora import LoraSettings, add_adapter, describe_base, save_adapter
from elocution.rollout.agreement import score_completions
from elocution.rollout.sglang_answers import decode_answer_audio
from elocution.rollout.sglang_legal import legal_ranges, processor_string
from elocution.rollout.sglang_protocol import GenerateResponse
from elocution.serve.tts_app import build_app
from elocution.serve.tts_server import TtsSettings, tts_service
from elocution.testing.policies import small_llasa
from elocution.testing.running_app import running
from elocution.types import Utterance, Voice

TEXT = "the green house"
POLICY = LlasaPolicy.from_pretrained(resolve_path("builtin:tiny-llasa"))
CODEC = load_codec("tiny", resolve_path("builtin:tiny-codec"))
PROMPT = POLICY.prompt_ids(Utterance("u", TEXT)).tolist()
STOP, CODE = POLICY.stop_id, POLICY.first_code_id


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with tts_service(TtsSettings(max_body=100_000)) as service, TestClient(build_app(service)) as client:
        yield client


def _body(**sampling: Any) -> dict[str, Any]:
    params = {"max_new_tokens": 60, "temperature": 0.3, "sampling_seed": 3} | sampling
    return {"input_ids": PROMPT, "sampling_params": params, "return_logprob": True}


def _own(ids: list[int], temperature: float, prompt: list[int] = PROMPT) -> list[float]:
    grid = np.array(ids)[:, None]
    (scores,) = score_completions(POLICY, [np.array(prompt)], [grid], temperature=temperature)
    found: list[float] = scores[:, 0].tolist()
    return found


def _wav(content: bytes) -> tuple[np.ndarray[Any, Any], int]:
    samples, rate = soundfile.read(io.BytesIO(content))
    return samples, rate


def test_s44_s47_ids_are_legal_and_their_logprobs_those_of_the_policy(client: TestClient) -> None:
    answer = client.post("/generate", json=_body(temperature=0.7)).json()
    read = GenerateResponse.model_validate(answer)
    assert set(answer["output_ids"]) <= set(POLICY.legal_ids.tolist())
    logprobs = read.meta_info.output_token_logprobs
    assert logprobs is not None
    assert [entry[1] for entry in logprobs] == read.output_ids
    assert [entry[0] for entry in logprobs] == pytest.approx(_own(answer["output_ids"], 0.7), abs=1e-4)
    assert read.meta_info.prompt_tokens == len(PROMPT)
    assert read.meta_info.finish_reason.type == "stop"
    assert (read.meta_info.finish_reason.matched, answer["output_ids"][-1]) == (STOP, STOP)
    assert read.meta_info.weight_version == "default"


def test_a_text_is_rendered_as_the_family_does(client: TestClient) -> None:
    by_ids = client.post("/generate", json=_body()).json()
    named = {"text": TEXT, "sampling_params": _body()["sampling_params"], "return_prompt_token_ids": True}
    by_text = client.post("/generate", json=named).json()
    assert by_text["prompt_token_ids"] == PROMPT
    assert by_text["output_ids"] == by_ids["output_ids"]


def test_n_siblings_differ_and_come_as_a_list(client: TestClient) -> None:
    answers = client.post("/generate", json=_body(n=3, temperature=1.0)).json()
    assert len({tuple(answer["output_ids"]) for answer in answers}) == 3
    assert (
        client.post("/generate", json=_body(n=3, temperature=1.0)).json()[1]["output_ids"] == answers[1]["output_ids"]
    )


def test_a_given_sequence_is_scored_without_a_draw(client: TestClient) -> None:
    ids = [CODE + 5, CODE + 9, STOP]
    body = _body(max_new_tokens=0, temperature=0.5) | {"logprob_start_len": len(PROMPT) - 1}
    answer = client.post("/generate", json=body | {"input_ids": [*PROMPT, *ids]}).json()
    first, *entries = answer["meta_info"]["input_token_logprobs"]
    assert first == [None, PROMPT[-1], None]
    assert [entry[1] for entry in entries] == ids
    assert [entry[0] for entry in entries] == pytest.approx(_own(ids, 0.5), abs=1e-4)
    assert answer["output_ids"] == []


def test_logprobs_of_wanted_ids_are_those_of_the_distribution_that_is_drawn_from(client: TestClient) -> None:
    wanted = [CODE + 1, STOP]
    answer = client.post("/generate", json=_body(max_new_tokens=1) | {"token_ids_logprob": wanted}).json()
    ((one, other),) = answer["meta_info"]["output_token_ids_logprobs"]
    assert [one[0], other[0]] == pytest.approx([_own([each], 0.3)[0] for each in wanted], abs=1e-4)


def test_the_mask_that_our_client_brings_is_taken_and_never_read(client: TestClient) -> None:
    params = {"legal_ranges": legal_ranges(POLICY.legal_ids.tolist())}
    body = _body(custom_params=params) | {"custom_logit_processor": processor_string()}
    assert client.post("/generate", json=body).status_code == 200
    refused = client.post("/generate", json=body | {"custom_logit_processor": '{"callable": "80"}'})
    assert (refused.status_code, refused.json()["kind"]) == (400, "unknown_processor")


def test_audio_comes_as_a_wav_in_base64_where_it_is_asked_for(client: TestClient) -> None:
    answer = client.post("/generate", json=_body() | {"modalities": ["audio"]}).json()
    sound = decode_answer_audio(answer["text"])
    assert sound is not None
    assert sound.duration_s == pytest.approx((len(answer["output_ids"]) - 1) / 25, abs=0.1)
    assert np.abs(sound.samples).max() > 0.05
    assert client.post("/generate", json=_body()).json()["text"] == ""


def test_what_is_no_speech_is_a_clip_of_one_sample_as_in_sglangs_fork(client: TestClient) -> None:
    answer = client.post("/generate", json=_body(max_new_tokens=2) | {"modalities": ["audio"]}).json()
    assert answer["meta_info"]["finish_reason"] == {"type": "length", "length": 2}
    assert len(_wav(base64.b64decode(answer["text"]))[0]) == 1


def test_openais_speech_route_gives_the_sound_of_the_text(client: TestClient) -> None:
    body = {"model": "any", "input": TEXT, "voice": "default", "response_format": "wav", "seed": 3}
    answer = client.post("/v1/audio/speech", json=body)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "audio/wav")
    samples, rate = _wav(answer.content)
    assert 0.5 < len(samples) / rate < 4
    assert np.abs(samples).max() > 0.05
    assert client.post("/v1/audio/speech", json=body).content == answer.content


def test_a_recording_gives_its_voice_to_both_routes_and_is_not_heard_itself(client: TestClient) -> None:
    samples, rate = _wav(resolve_path("builtin:tiny-clip").read_bytes())
    begun = io.BytesIO()
    soundfile.write(begun, samples[: len(samples) * 4 // 10], rate, format="WAV")
    recording = "data:audio/wav;base64," + base64.b64encode(begun.getvalue()).decode()
    words, text = "the little ", "brother was young"
    body = {"text": text, "sampling_params": _body(n=8)["sampling_params"], "return_prompt_token_ids": True}
    plain = client.post("/generate", json=body).json()
    asked = client.post("/generate", json=body | {"audio_data": recording, "ref_text": words, "modalities": ["audio"]})
    assert asked.status_code == 200, asked.text
    codes = CODEC.encode(read_audio(begun.getvalue()))
    own = POLICY.prompt_ids(Utterance("u", text, voice=Voice("v", words, codes))).tolist()
    assert asked.json()[0]["prompt_token_ids"] == own != plain[0]["prompt_token_ids"]
    sounds = [(decode_answer_audio(answer["text"]), len(answer["output_ids"]) - 1) for answer in asked.json()]
    audible = [(sound.duration_s, count / CODEC.frame_rate) for sound, count in sounds if sound is not None]
    assert audible  # as long as what was drawn, without the recording
    assert all(found == pytest.approx(drawn, abs=0.1) for found, drawn in audible)
    speech = {"input": text, "ref_audio": recording, "ref_text": words}
    assert 200 in {client.post("/v1/audio/speech", json=speech | {"seed": seed}).status_code for seed in range(4)}


@pytest.mark.parametrize("merged", [False, True])
def test_s66_an_adapter_is_served_as_it_is_and_merged_alike(tmp_path: Path, merged: bool) -> None:
    policy = LlasaPolicy.from_pretrained(resolve_path("builtin:tiny-llasa"))
    add_adapter(policy.model, LoraSettings(rank=2), targets=policy.lora_targets, seed=0, base_path="builtin:tiny-llasa")
    with torch.no_grad():
        for name, parameter in policy.model.named_parameters():
            if "lora_B" in name:
                parameter.add_(0.05)
    if merged:
        policy.save_pretrained(str(tmp_path))
    else:
        save_adapter(policy.model, str(tmp_path), base=describe_base("builtin:tiny-llasa"))
    with tts_service(TtsSettings(model=str(tmp_path))) as service, TestClient(build_app(service)) as client:
        answer = client.post("/generate", json=_body()).json()
    (own,) = score_completions(policy, [np.array(PROMPT)], [np.array(answer["output_ids"])[:, None]], temperature=0.3)
    found = [entry[0] for entry in answer["meta_info"]["output_token_logprobs"]]
    assert found == pytest.approx(own[:, 0].tolist(), abs=1e-4)
    assert found != pytest.approx(_own(answer["output_ids"], 0.3), abs=1e-2)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"{", "malformed_request"),
        (b"[]", "malformed_request"),
        ({}, "one_prompt"),
        ({"text": TEXT, "input_ids": [1]}, "one_prompt"),
        ({"text": "x" * 2001}, "text_too_long"),
        ({"text": " !? "}, "empty_text"),
        ({"text": "日本語"}, "unspeakable_text"),
        ({"input_ids": []}, "wrong_channels"),
        ({"input_ids": [10**9]}, "id_out_of_range"),
        ({"input_ids": [-1]}, "id_out_of_range"),
        ({"input_ids": [[1], [2]]}, "wrong_channels"),
        ({"input_ids": [1], "multi_channel": True}, "wrong_channels"),
        ({"input_ids": "one"}, "invalid_field"),
        ({"text": TEXT, "image_data": "x"}, "unknown_field"),
        ({"text": TEXT, "stream": True}, "unsupported"),
        ({"text": TEXT, "audio_data": "/etc/passwd"}, "no_reference_text"),
        ({"text": TEXT, "audio_data": "/etc/passwd", "ref_text": TEXT}, "reference_not_allowed"),
        ({"text": TEXT, "audio_data": ["a", "b"], "ref_text": TEXT}, "too_many"),
        ({"input_ids": [1], "audio_data": "a"}, "one_prompt"),
        ({"text": TEXT, "ref_text": 1}, "invalid_field"),
        ({"text": TEXT, "ref_text": TEXT}, "no_reference"),
        ({"text": "${instruction:sad}" + TEXT}, "no_instructions"),
        ({"text": "${emotion:sad}" + TEXT}, "unknown_tag"),
        ({"text": TEXT, "lora_path": "none"}, "unknown_adapter"),
        ({"text": TEXT, "sampling_params": []}, "malformed_request"),
        ({"text": TEXT, "sampling_params": {"regex": "a"}}, "unknown_field"),
        ({"text": TEXT, "sampling_params": {"top_p": 0.5}}, "unsupported_sampling"),
        ({"text": TEXT, "sampling_params": {"repetition_penalty": 1.1}}, "unsupported_sampling"),
        ({"text": TEXT, "sampling_params": {"temperature": -0.1}}, "unsupported_sampling"),
        ({"text": TEXT, "sampling_params": {"temperature": float("nan")}}, "invalid_field"),
        ({"text": TEXT, "sampling_params": {"stop_token_ids": [1]}}, "unsupported_stop"),
        ({"text": TEXT, "sampling_params": {"n": 65}}, "too_many"),
        ({"text": TEXT, "sampling_params": {"n": 0}}, "too_many"),
        ({"text": TEXT, "sampling_params": {"max_new_tokens": -1}}, "malformed_request"),
        ({"text": TEXT, "sampling_params": {"max_new_tokens": 10**9}}, "too_long"),
        ({"text": TEXT, "sampling_params": {"max_new_tokens": 0}}, "nothing_to_do"),
        ({"text": TEXT, "sampling_params": {"custom_params": {"legal_ranges": [1, 2]}}}, "other_legal_ids"),
        ({"text": TEXT, "token_ids_logprob": [CODE]}, "unsupported"),
        (
            {
                "input_ids": PROMPT,
                "return_logprob": True,
                "logprob_start_len": 0,
                "sampling_params": {"max_new_tokens": 0},
            },
            "illegal_id",
        ),
    ],
)
def test_a_bad_request_is_named_and_the_server_goes_on(client: TestClient, body: Any, kind: str) -> None:
    content = body if isinstance(body, bytes) else json.dumps(body)
    answer = client.post("/generate", content=content)
    assert (answer.status_code, answer.json()["kind"]) == (400, kind), answer.text
    assert answer.json()["error"]
    assert client.get("/health_generate").status_code == 200


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"response_format": "mp3"}, "unsupported_format"),
        ({"voice": "alloy"}, "unknown_voice"),
        ({"speed": 2.0}, "unsupported_speed"),
        ({"input": ""}, "invalid_field"),
        ({"input": "\ud800 one"}, "invalid_field"),
        ({"stream": True}, "invalid_field"),
        ({"seed": -1}, "invalid_field"),
        ({"instructions": "sad"}, "no_instructions"),
        ({"ref_audio": "/etc/passwd", "ref_text": TEXT}, "reference_not_allowed"),
    ],
)
def test_a_bad_speech_request_is_named(client: TestClient, change: dict[str, Any], kind: str) -> None:
    answer = client.post("/v1/audio/speech", content=json.dumps({"input": TEXT} | change))
    assert (answer.status_code, answer.json()["kind"]) == (400, kind), answer.text


def test_a_body_beyond_the_limit_is_refused(client: TestClient) -> None:
    answer = client.post("/generate", content=b"x" * 100_001)
    assert (answer.status_code, answer.json()["kind"]) == (413, "body_too_large")
    assert client.get("/nowhere").status_code == 404


def test_with_a_token_only_health_is_open() -> None:
    with tts_service(TtsSettings(token="secret")) as service, TestClient(build_app(service)) as client:
        assert client.get("/health").status_code == 200
        for method, path in (("POST", "/generate"), ("POST", "/update_weights_from_disk"), ("GET", "/model_info")):
            answer = client.request(method, path)
            assert (answer.status_code, answer.json()["kind"]) == (401, "unauthorized")
        assert client.get("/model_info", headers={"Authorization": "Bearer secret"}).status_code == 200


def test_weights_are_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    policy = LlasaPolicy.from_pretrained(resolve_path("builtin:tiny-llasa"))
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.mul_(1.05)
    policy.save_pretrained(str(tmp_path / "new"))
    small_llasa().save_pretrained(str(tmp_path / "other"))
    with tts_service(TtsSettings()) as service, TestClient(build_app(service)) as client:
        before = client.post("/generate", json=_body(temperature=1.0)).json()
        for wrong, message in (("missing", "no folder"), ("other", "other speech ids")):
            body = {"model_path": str(tmp_path / wrong), "weight_version": "7"}
            refused = client.post("/update_weights_from_disk", json=body)
            assert (refused.status_code, refused.json()["success"]) == (400, False)
            assert message in refused.json()["message"]
        assert client.post("/generate", json=_body(temperature=1.0)).json() | {"meta_info": 0} == before | {
            "meta_info": 0
        }
        body = {"model_path": str(tmp_path / "new"), "weight_version": "7"}
        taken = client.post("/update_weights_from_disk", json=body)
        assert (taken.status_code, taken.json()["success"]) == (200, True)
        info = client.get("/get_model_info").json()
        assert (info["weight_version"], info["model_path"]) == ("7", str(tmp_path / "new"))
        after = client.post("/generate", json=_body(temperature=1.0)).json()
        assert after["meta_info"]["weight_version"] == "7"
        (own,) = score_completions(
            policy, [np.array(PROMPT)], [np.array(after["output_ids"])[:, None]], temperature=1.0
        )
        found = [entry[0] for entry in after["meta_info"]["output_token_logprobs"]]
        assert found == pytest.approx(own[:, 0].tolist(), abs=1e-4)
        assert found != pytest.approx(_own(after["output_ids"], 1.0), abs=1e-2)


def test_an_adapter_acts_where_it_is_named_alone(tmp_path: Path) -> None:
    policy = LlasaPolicy.from_pretrained(resolve_path("builtin:tiny-llasa"))
    add_adapter(policy.model, LoraSettings(rank=2), targets=policy.lora_targets, seed=0, base_path="builtin:tiny-llasa")
    with torch.no_grad():
        for name, parameter in policy.model.named_parameters():
            if "lora_B" in name:
                parameter.add_(0.05)
    save_adapter(policy.model, str(tmp_path / "adapter"), base=describe_base("builtin:tiny-llasa"))
    with tts_service(TtsSettings()) as service, TestClient(build_app(service)) as client:
        loaded = client.post("/load_lora_adapter", json={"lora_name": "a", "lora_path": str(tmp_path / "adapter")})
        assert loaded.json() == {"success": True, "loaded_adapters": {"a": str(tmp_path / "adapter")}}
        named = client.post("/generate", json=_body() | {"lora_path": "a"}).json()
        (own,) = score_completions(
            policy, [np.array(PROMPT)], [np.array(named["output_ids"])[:, None]], temperature=0.3
        )
        found = [entry[0] for entry in named["meta_info"]["output_token_logprobs"]]
        assert found == pytest.approx(own[:, 0].tolist(), abs=1e-4)
        plain = client.post("/generate", json=_body()).json()
        found = [entry[0] for entry in plain["meta_info"]["output_token_logprobs"]]
        assert found == pytest.approx(_own(plain["output_ids"], 0.3), abs=1e-4)
        assert client.post("/unload_lora_adapter", json={"lora_name": "a"}).json()["success"]
        assert client.post("/unload_lora_adapter", json={"lora_name": "a"}).status_code == 400


def test_requests_at_once_are_drawn_together_and_each_as_if_alone() -> None:
    with tts_service(TtsSettings(max_delay_ms=200)) as service, running(build_app(service), drain_s=10) as url:
        bodies = [_body(sampling_seed=seed, temperature=1.0) for seed in range(8)]
        with httpx2.Client(base_url=url, timeout=60) as http:
            alone = [http.post("/generate", json=body).json()["output_ids"] for body in bodies]
            before = _batches(http)
            with ThreadPoolExecutor(8) as pool:
                together = list(pool.map(lambda body: http.post("/generate", json=body).json()["output_ids"], bodies))
            assert together == alone
            assert _batches(http) - before < 8


def _batches(http: httpx2.Client) -> int:
    (line,) = [each for each in http.get("/metrics").text.splitlines() if "batch_requests_count" in each]
    return int(float(line.split()[-1]))


def test_paused_generation_waits_until_it_is_continued() -> None:
    with (
        tts_service(TtsSettings()) as service,
        running(build_app(service), drain_s=10) as url,
        httpx2.Client(base_url=url, timeout=60) as http,
        ThreadPoolExecutor(1) as pool,
    ):
        assert http.post("/pause_generation", json={"mode": "abort"}).status_code == 200
        asking = pool.submit(httpx2.post, f"{url}/generate", json=_body(), timeout=60)
        deadline = time.monotonic() + 1.0
        while time.monotonic() < deadline:
            assert not asking.done()
            assert http.get("/health").status_code == 200
        http.post("/continue_generation", json={})
        assert asking.result().status_code == 200
