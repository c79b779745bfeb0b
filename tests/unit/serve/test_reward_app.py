"""The reward server in-process, with the tiny codec and the real recognisers: answers, limits, bad requests."""

import gzip
import json
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from elocution.assets import resolve_path
from elocution.audio import read_audio
from elocution.codecs import load_codec
from elocution.config.load import load_config
from elocution.config.tree import RunConfig
from elocution.errors import RewardError
from elocution.kserve import JSON_LENGTH_HEADER, Tensor, decode_response, encode_request, text_tensor, texts_of
from elocution.serve.reward_app import build_app
from elocution.serve.reward_server import reward_service
from elocution.types import Audio

CODES, WAVES = "/v2/models/token2wav_asr/infer", "/v2/models/token2wav_asr_wav/infer"
CODEC = load_codec("tiny", resolve_path("builtin:tiny-codec"))
TEXT = "the little brother was young"
CLIP = read_audio(resolve_path("builtin:tiny-clip"))
SPOKEN = CODEC.encode(CLIP)[:, 0].tolist()


def _config(*overrides: str) -> RunConfig:
    return load_config(None, ["reward.workers=1", *overrides])


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    limits = [f"reward_server.{limit}" for limit in ("max_body_mib=1", "max_clip_s=5", "max_text_chars=500")]
    with reward_service(_config(*limits)) as service, TestClient(build_app(service)) as client:
        yield client


def _codes(codes: list[int], text: str = TEXT) -> dict[str, Any]:
    """The body of the CosyVoice 2 recipe's client."""
    return {
        "inputs": [
            {"name": "TOKENS", "shape": [1, len(codes)], "datatype": "INT32", "data": [codes]},
            {"name": "TOKEN_LENS", "shape": [1, 1], "datatype": "INT32", "data": [[len(codes)]]},
            {"name": "GT_TEXT", "shape": [1, 1], "datatype": "BYTES", "data": [text]},
        ]
    }


def _changed(tensor: str, /, **change: Any) -> dict[str, Any]:
    body = _codes(SPOKEN)
    return {"inputs": [one | change if one["name"] == tensor else one for one in body["inputs"]]}


def _output(answer: dict[str, Any], name: str) -> list[Any]:
    found: list[Any] = next(output for output in answer["outputs"] if output["name"] == name)["data"]
    return found


def _wave_message(clips: list[Audio], texts: list[str], *outputs: str) -> tuple[bytes, dict[str, str]]:
    waves = np.zeros((len(clips), max(len(clip.samples) for clip in clips)), np.float32)
    for row, clip in zip(waves, clips, strict=True):
        row[: len(clip.samples)] = clip.samples
    lengths = np.array([[len(clip.samples)] for clip in clips], np.int32)
    rates = np.array([[clip.sample_rate] for clip in clips], np.int32)
    message = encode_request(
        [
            Tensor("WAV", "FP32", waves),
            Tensor("WAV_LENS", "INT32", lengths),
            Tensor("SAMPLE_RATE", "INT32", rates),
            text_tensor("GT_TEXT", texts),
        ],
        outputs=outputs,
        request_id="waves",
    )
    return message.body, message.headers


def test_the_recipes_own_request_is_answered_as_its_client_reads_it(client: TestClient) -> None:
    response = client.post(CODES, params={"request_id": "0"}, json=_codes(SPOKEN))
    assert response.status_code == 200
    answer = response.json()
    assert (answer["model_name"], answer["model_version"]) == ("token2wav_asr", "1")
    assert [(one["name"], one["datatype"], one["shape"]) for one in answer["outputs"]] == [
        ("REWARDS", "FP32", [1, 1]),
        ("TRANSCRIPTS", "BYTES", [1, 1]),
    ]
    assert answer["outputs"][0]["data"][0] > 0.7
    assert answer["outputs"][1]["data"] == [TEXT]


def test_a_wrong_text_scores_low(client: TestClient) -> None:
    answer = client.post(CODES, json=_codes(SPOKEN, "nine nine seven one")).json()
    assert 0 <= answer["outputs"][0]["data"][0] < 0.2


def test_every_output_can_be_asked_for_by_name(client: TestClient) -> None:
    names = ["STATUS", "MEASURES", "PARTS", "VALUES", "ERROR", "REWARDS"]
    body = _codes(SPOKEN) | {"id": "mine", "outputs": [{"name": name} for name in names]}
    answer = client.post(CODES, json=body).json()
    assert [one["name"] for one in answer["outputs"]] == names
    assert answer["id"] == "mine"
    assert (_output(answer, "STATUS"), _output(answer, "ERROR")) == (["scored"], [""])
    assert json.loads(_output(answer, "MEASURES")[0])["wer"] == 0.0
    assert json.loads(_output(answer, "PARTS")[0])["wer"] == 1.0
    assert _output(answer, "REWARDS")[0] == float(np.float32(_output(answer, "VALUES")[0]))


def test_codes_behind_the_length_are_not_heard(client: TestClient) -> None:
    padded = _changed("TOKENS", shape=[1, len(SPOKEN) + 2], data=[[*SPOKEN, -1, 10**6]])
    assert client.post(CODES, json=padded).json() == client.post(CODES, json=_codes(SPOKEN)).json()


def test_s07_a_completion_without_codes_takes_the_floor_among_others(client: TestClient) -> None:
    body = {
        "inputs": [
            {"name": "TOKENS", "shape": [2, len(SPOKEN)], "datatype": "INT32", "data": SPOKEN * 2},
            {"name": "TOKEN_LENS", "shape": [2, 1], "datatype": "INT32", "data": [len(SPOKEN), 0]},
            {"name": "GT_TEXT", "shape": [2, 1], "datatype": "BYTES", "data": [TEXT, TEXT]},
        ],
        "outputs": [{"name": name} for name in ("REWARDS", "STATUS", "ERROR")],
    }
    answer = client.post(CODES, json=body).json()
    heard, empty = _output(answer, "REWARDS")
    assert (heard > 0.7, empty) == (True, 0.0)
    assert _output(answer, "STATUS") == ["scored", "unscorable"]
    assert _output(answer, "ERROR") == ["", "no speech: the clip is empty"]
    alone = client.post(CODES, json=_changed("TOKEN_LENS", data=[0]) | {"outputs": body["outputs"]}).json()
    assert _output(alone, "STATUS") == ["unscorable"]


def test_s01_silence_takes_the_floor(client: TestClient) -> None:
    silence = Audio(np.zeros(32_000, np.float32), 16_000)
    body, headers = _wave_message([silence], ["hello world"], "REWARDS", "STATUS", "TRANSCRIPTS", "MEASURES")
    response = client.post(WAVES, content=body, headers=headers)
    read = decode_response(response.content, int(response.headers[JSON_LENGTH_HEADER])).outputs
    assert read["REWARDS"].values.tolist() == [[0.0]]
    assert texts_of(read["STATUS"]) == ["unscorable"]
    assert texts_of(read["TRANSCRIPTS"]) == [""]
    assert json.loads(texts_of(read["MEASURES"])[0]) == {"wer": 1.0, "empty_transcript": 1.0}


def test_waveforms_of_unlike_length_and_rate_score_as_each_alone(client: TestClient, spoken: dict[str, Audio]) -> None:
    texts = list(spoken)[:3]
    clips = [spoken[text] for text in texts]
    clips[1] = Audio(np.repeat(clips[1].samples, 2), 32_000)
    body, headers = _wave_message(clips, texts, "VALUES", "TRANSCRIPTS", "STATUS")
    response = client.post(WAVES, content=body, headers=headers)
    together = decode_response(response.content, int(response.headers[JSON_LENGTH_HEADER])).outputs
    assert texts_of(together["TRANSCRIPTS"]) == texts
    for index, (clip, text) in enumerate(zip(clips, texts, strict=True)):
        body, headers = _wave_message([clip], [text], "VALUES", "STATUS")
        response = client.post(WAVES, content=body, headers=headers)
        alone = decode_response(response.content, int(response.headers[JSON_LENGTH_HEADER])).outputs
        assert alone["VALUES"].values[0, 0] == together["VALUES"].values[index, 0]


@pytest.mark.parametrize(
    ("body", "kind", "message"),
    [
        (_codes([*SPOKEN, 2048]), "code_out_of_range", "TOKENS row 0 spans .* the codebook has 0 to 2047"),
        (_codes([-1]), "code_out_of_range", "spans -1 to -1"),
        (_codes([5] * 126), "clip_too_long", "row 0 has 126 codes, 5.04 s; the limit is 5 s"),
        (_codes(SPOKEN, ""), "empty_text", "GT_TEXT row 0 holds no word"),
        (_codes(SPOKEN, " … [laugh] "), "empty_text", "GT_TEXT row 0 holds no word"),
        (_codes(SPOKEN, "a" * 501), "text_too_long", "501 characters, at most 500"),
        (_changed("TOKENS", datatype="INT64"), "wrong_datatype", "TOKENS has datatype INT64, expected INT32"),
        (_changed("TOKENS", datatype="FP32"), "wrong_datatype", "TOKENS has datatype FP32, expected INT32"),
        (_changed("TOKENS", shape=[len(SPOKEN)], data=SPOKEN), "wrong_shape", r"expected \[-1, -1\]"),
        (_changed("TOKEN_LENS", shape=[1], data=[1]), "wrong_shape", r"TOKEN_LENS has shape \[1\], expected \[-1, 1\]"),
        (_changed("GT_TEXT", shape=[2, 1], data=["one", "six"]), "wrong_shape", "disagree on the number of clips"),
        (_changed("TOKEN_LENS", data=[-1]), "wrong_length", "TOKEN_LENS row 0 is -1"),
        (_changed("TOKEN_LENS", data=[999]), "wrong_length", "TOKEN_LENS row 0 is 999"),
        (_changed("TOKENS", name="CODES"), "unknown_input", "no input 'CODES'; it takes TOKENS"),
        ({"inputs": _codes(SPOKEN)["inputs"][:2]}, "missing_input", "the input GT_TEXT is missing"),
        (_codes(SPOKEN) | {"outputs": [{"name": "SIM"}]}, "unknown_output", "no output 'SIM'; there are REWARDS"),
        ({"inputs": []}, "malformed_request", "at least 1 item"),
        ({}, "malformed_request", "inputs: Field required"),
        (
            {
                "inputs": [
                    {"name": "TOKENS", "shape": [0, 3], "datatype": "INT32", "data": []},
                    {"name": "TOKEN_LENS", "shape": [0, 1], "datatype": "INT32", "data": []},
                    {"name": "GT_TEXT", "shape": [0, 1], "datatype": "BYTES", "data": []},
                ]
            },
            "empty_batch",
            "the request holds no clip",
        ),
        (
            {
                "inputs": [
                    {"name": "TOKENS", "shape": [33, 1], "datatype": "INT32", "data": [1] * 33},
                    {"name": "TOKEN_LENS", "shape": [33, 1], "datatype": "INT32", "data": [1] * 33},
                    {"name": "GT_TEXT", "shape": [33, 1], "datatype": "BYTES", "data": ["one"] * 33},
                ]
            },
            "batch_too_large",
            "33 clips, at most 32",
        ),
        (
            {
                "inputs": [
                    *_codes(SPOKEN)["inputs"],
                    {"name": "LANGUAGE", "shape": [1, 1], "datatype": "BYTES", "data": ["zz"]},
                ]
            },
            "unknown_language",
            "LANGUAGE row 0 is 'zz'; this server knows en",
        ),
    ],
)
def test_a_bad_request_is_named_and_the_server_lives(
    client: TestClient, body: dict[str, Any], kind: str, message: str
) -> None:
    response = client.post(CODES, json=body)
    assert response.status_code == 400
    assert response.json()["kind"] == kind
    assert re.search(message, response.json()["error"])
    assert client.post(CODES, json=_codes(SPOKEN)).status_code == 200


@pytest.mark.parametrize(
    ("samples", "rate", "kind"),
    [
        ([0.1, float("nan")], 16_000, "sample_not_finite"),
        ([0.1, float("inf")], 16_000, "sample_not_finite"),
        ([0.1, 12_000.0], 16_000, "sample_out_of_range"),
        ([0.1, 0.2], 3, "wrong_sample_rate"),
        ([0.0] * 24_000, 4_000, "clip_too_long"),
    ],
)
def test_a_waveform_that_is_none_is_named(client: TestClient, samples: list[float], rate: int, kind: str) -> None:
    body, headers = _wave_message([Audio(np.array(samples, np.float32), rate)], ["one"])
    response = client.post(WAVES, content=body, headers=headers)
    assert (response.status_code, response.json()["kind"]) == (400, kind)


def _wanted(*inputs: tuple[str, str, list[int], list[Any]]) -> dict[str, Any]:
    """The recipe's body with what the clip should sound like."""
    more = [{"name": n, "datatype": kind, "shape": shape, "data": data} for n, kind, shape, data in inputs]
    return {"inputs": [*_codes(SPOKEN)["inputs"], *more]}


@pytest.mark.parametrize(
    ("body", "kind", "message"),
    [
        (_wanted(("PROMPT_WAV", "FP32", [1, 1], [0.1])), "missing_input", "PROMPT_WAV_LENS is missing"),
        (
            _wanted(("PROMPT_WAV", "FP32", [1, 1], [0.1]), ("PROMPT_WAV_LENS", "INT32", [1, 1], [2])),
            "wrong_length",
            "PROMPT_WAV_LENS row 0 is 2",
        ),
        (
            _wanted(("PROMPT_WAV", "FP32", [1, 1], [9.0]), ("PROMPT_WAV_LENS", "INT32", [1, 1], [1])),
            "sample_out_of_range",
            "PROMPT_WAV row 0 reaches 9",
        ),
        (_wanted(("DESCRIPTION", "BYTES", [1, 1], ["a" * 501])), "text_too_long", "DESCRIPTION row 0 has 501"),
        (_wanted(("DESCRIPTION", "BYTES", [2, 1], ["a", "b"])), "wrong_shape", "disagree on the number of clips"),
    ],
)
def test_what_a_clip_should_sound_like_is_checked_too(
    client: TestClient, body: dict[str, Any], kind: str, message: str
) -> None:
    response = client.post(CODES, json=body)
    assert (response.status_code, response.json()["kind"]) == (400, kind)
    assert re.search(message, response.json()["error"])


def test_text_that_is_no_utf8_is_named(client: TestClient) -> None:
    body, headers = _wave_message([CLIP], ["one"])
    response = client.post(WAVES, content=body[:-3] + b"\xff\xfe\xfd", headers=headers)
    assert (response.status_code, response.json()["kind"]) == (400, "not_utf8")


@pytest.mark.parametrize("end", [-1, 100, 0])
def test_a_body_cut_short_is_named(client: TestClient, end: int) -> None:
    body, headers = _wave_message([CLIP], [TEXT])
    response = client.post(WAVES, content=body[:end], headers=headers)
    assert (response.status_code, response.json()["kind"]) == (400, "malformed_request")


def test_a_header_that_is_no_length_is_named(client: TestClient) -> None:
    response = client.post(CODES, json=_codes(SPOKEN), headers={JSON_LENGTH_HEADER: "-5"})
    assert (response.status_code, response.json()["kind"]) == (400, "malformed_request")


def test_a_text_of_a_megabyte_is_too_large(client: TestClient) -> None:
    response = client.post(CODES, json=_codes(SPOKEN, "a" * 2**20))
    assert (response.status_code, response.json()["kind"]) == (413, "body_too_large")


def test_a_body_without_an_announced_length_is_measured_as_it_comes(client: TestClient) -> None:
    response = client.post(CODES, content=(b" " * 2**16 for _ in range(20)))
    assert (response.status_code, response.json()["kind"]) == (413, "body_too_large")


@pytest.mark.parametrize(("encoding", "compress"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
def test_a_compressed_body_is_read_within_the_limit(client: TestClient, encoding: str, compress: Any) -> None:
    plain = json.dumps(_codes(SPOKEN)).encode()
    headers = {"Content-Encoding": encoding}
    response = client.post(CODES, content=compress(plain), headers=headers)
    assert response.json() == client.post(CODES, content=plain).json()
    bomb = client.post(CODES, content=compress(b" " * 2**24), headers=headers)
    assert (bomb.status_code, bomb.json()["kind"]) == (413, "body_too_large")
    for broken in (compress(plain)[:-4], b"no stream", compress(plain) + b"more"):
        response = client.post(CODES, content=broken, headers=headers)
        assert (response.status_code, response.json()["kind"]) == (400, "malformed_encoding")


def test_an_unknown_compression_is_named(client: TestClient) -> None:
    response = client.post(CODES, content=b"x", headers={"Content-Encoding": "br"})
    assert (response.status_code, response.json()["kind"]) == (415, "unknown_encoding")


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_a_long_answer_is_compressed_for_those_who_take_it(client: TestClient, encoding: str) -> None:
    count = 30
    body = {
        "inputs": [
            {"name": "TOKENS", "shape": [count, 1], "datatype": "INT32", "data": [1] * count},
            {"name": "TOKEN_LENS", "shape": [count, 1], "datatype": "INT32", "data": [0] * count},
            {"name": "GT_TEXT", "shape": [count, 1], "datatype": "BYTES", "data": [TEXT] * count},
        ],
        "outputs": [{"name": "MEASURES"}, {"name": "STATUS"}],
    }
    plain = client.post(CODES, json=body, headers={"Accept-Encoding": "identity"})
    packed = client.post(CODES, json=body, headers={"Accept-Encoding": encoding})
    assert "Content-Encoding" not in plain.headers
    assert packed.headers["Content-Encoding"] == encoding
    assert packed.json() == plain.json()


@pytest.mark.parametrize(
    ("method", "path", "status", "kind"),
    [
        ("POST", "/v2/models/other/infer", 404, "unknown_model"),
        ("POST", "/v2/models/token2wav_asr/versions/2/infer", 404, "unknown_model"),
        ("GET", "/v2/models/other", 404, "unknown_model"),
        ("GET", "/v2/models/other/ready", 404, "unknown_model"),
        ("GET", "/v2/models/..%2f..%2fetc/ready", 404, "not_found"),
        ("GET", "/etc/passwd", 404, "not_found"),
        ("GET", "/docs", 404, "not_found"),
        ("GET", "/v2/models/token2wav_asr/infer", 405, "method_not_allowed"),
    ],
)
def test_a_path_that_is_none_is_named(client: TestClient, method: str, path: str, status: int, kind: str) -> None:
    response = client.request(method, path)
    assert (response.status_code, response.json()["kind"]) == (status, kind)


def test_health_and_metadata(client: TestClient) -> None:
    assert client.get("/v2").json()["extensions"] == ["binary_tensor_data"]
    for path in ("/v2/health/live", "/v2/health/ready", "/v2/models/token2wav_asr_wav/versions/1/ready"):
        assert client.get(path).status_code == 200
    metadata = client.get("/v2/models/token2wav_asr").json()
    assert metadata["inputs"][:3] == [
        {"name": "TOKENS", "datatype": "INT32", "shape": [-1, -1]},
        {"name": "TOKEN_LENS", "datatype": "INT32", "shape": [-1, 1]},
        {"name": "GT_TEXT", "datatype": "BYTES", "shape": [-1, 1]},
    ]
    assert metadata["outputs"][:2] == [
        {"name": "REWARDS", "datatype": "FP32", "shape": [-1, 1]},
        {"name": "TRANSCRIPTS", "datatype": "BYTES", "shape": [-1, 1]},
    ]


def test_metrics_count_what_happened(client: TestClient) -> None:
    def count(line: str) -> float:
        return float(next((x for x in client.get("/metrics").text.splitlines() if x.startswith(line)), "0").split()[-1])

    good, bad = (f'elocution_requests_total{{code="{code}",model="token2wav_asr"}}' for code in (200, 400))
    gated = count("elocution_clips_gated_total")
    before = count(good), count(bad), count("elocution_clips_remembered_total")
    client.post(CODES, json=_codes(SPOKEN))
    client.post(CODES, json=_codes(SPOKEN))
    client.post(CODES, json=_codes([-1]))
    after = count(good), count(bad), count("elocution_clips_remembered_total")
    assert (after[0] - before[0], after[1] - before[1]) == (2, 1)
    assert after[2] - before[2] >= 1
    assert count('elocution_clips_total{status="scored"}') >= 2
    assert count("elocution_clips_gated_total") == gated
    silence = Audio(np.zeros(1601, np.float32), 16_000)
    body, headers = _wave_message([silence], [TEXT])
    client.post(WAVES, content=body, headers=headers)
    assert count("elocution_clips_gated_total") == gated + 1


def test_a_token_is_asked_for_by_all_but_health(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REWARD_TOKEN", "s3cret")
    config = _config(
        "reward_server.token_env=REWARD_TOKEN", "reward.type=scripted_rewards:CountsCalls", 'reward.self_test.audio=""'
    )
    with reward_service(config) as service, TestClient(build_app(service)) as client:
        assert client.get("/v2/health/ready").status_code == 200
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "s3cret"}):
            response = client.post(CODES, json=_codes(SPOKEN), headers=headers)
            assert (response.status_code, response.json()["kind"]) == (401, "unauthorized")
            assert response.headers["WWW-Authenticate"] == "Bearer"
            assert client.get("/metrics", headers=headers).status_code == 401
            assert client.get("/v2/models/token2wav_asr", headers=headers).status_code == 401
        headers = {"Authorization": "Bearer s3cret"}
        assert client.post(CODES, json=_codes(SPOKEN), headers=headers).status_code == 200
        assert client.get("/metrics", headers=headers).status_code == 200


def test_scores_are_remembered_and_failures_are_not() -> None:
    config = _config("reward.type=scripted_rewards:CountsCalls", 'reward.self_test.audio=""')
    with reward_service(config) as service, TestClient(build_app(service)) as client:

        def ask(codes: list[int], text: str) -> tuple[int, Any]:
            response = client.post(CODES, json=_codes(codes, text))
            return response.status_code, response.json()

        first = ask(SPOKEN, "one")
        assert ask(SPOKEN, "one") == first
        assert ask(SPOKEN, "six") != first
        assert ask(SPOKEN[1:], "one") != first
        status, answer = ask(SPOKEN, "fail")
        assert (status, answer["kind"]) == (503, "unscored")
        assert "once" in answer["error"]
        assert ask(SPOKEN, "fail")[0] == 200


def test_a_server_spreads_its_scoring_processes_over_the_devices() -> None:
    name = "scripted_rewards:SaysItsDevice"
    where = [
        f"reward.{key}={value}" for key, value in (("asr", name), ("asr_path", "."), ("nll", name), ("nll_path", "."))
    ]
    config = _config(*where, 'reward.devices=["alpha", "beta"]', "reward.workers=0", 'reward.self_test.audio=""')
    assert config.reward.num_workers == 2
    heard: set[str] = set()
    with reward_service(config) as service, TestClient(build_app(service)) as client:
        for batch in range(20):  # until both processes have started
            texts = [f"{'one ' * (batch + 1)}{word}" for word in ("two", "three", "four", "five", "six", "seven")]
            inputs = [
                {"name": "TOKENS", "shape": [6, len(SPOKEN)], "datatype": "INT32", "data": [SPOKEN] * 6},
                {"name": "TOKEN_LENS", "shape": [6, 1], "datatype": "INT32", "data": [len(SPOKEN)] * 6},
                {"name": "GT_TEXT", "shape": [6, 1], "datatype": "BYTES", "data": texts},
            ]
            heard |= set(_output(client.post(CODES, json={"inputs": inputs}).json(), "TRANSCRIPTS"))
            if len(heard) == 2:
                break
    assert {text.split()[0] for text in heard} == {"alpha", "beta"}
    assert len(heard) == 2  # one process on each


def test_s02_s05_one_clip_that_hangs_one_that_raises_and_one_of_nan_are_alone_unscored() -> None:
    config = _config(
        "reward.type=scripted_rewards:ByText", "reward.timeout_s=1.0", "reward.workers=2", 'reward.self_test.audio=""'
    )
    texts = ["one", "hang", "nine", "raise", "seven", "nan", "six"]
    body: dict[str, Any] = {
        "inputs": [
            {"name": "TOKENS", "shape": [7, len(SPOKEN)], "datatype": "INT32", "data": [SPOKEN] * 7},
            {"name": "TOKEN_LENS", "shape": [7, 1], "datatype": "INT32", "data": [len(SPOKEN)] * 7},
            {"name": "GT_TEXT", "shape": [7, 1], "datatype": "BYTES", "data": texts},
        ]
    }
    with reward_service(config) as service, TestClient(build_app(service)) as client:
        unaware = client.post(CODES, json=body)
        assert (unaware.status_code, unaware.json()["kind"]) == (503, "unscored")
        assert "3 of 7 clips could not be scored; row 1: " in unaware.json()["error"]
        assert unaware.headers["Retry-After"] == "1"
        answer = client.post(
            CODES, json=body | {"outputs": [{"name": n} for n in ("REWARDS", "STATUS", "ERROR")]}
        ).json()
    assert _output(answer, "REWARDS") == [1.0, None, 1.0, None, 1.0, None, 1.0]
    assert _output(answer, "STATUS") == ["scored", "unscored"] * 3 + ["scored"]
    reasons = _output(answer, "ERROR")
    assert "longer than 1 s" in reasons[1]
    assert "the recogniser is broken" in reasons[3]
    assert "NaN" in reasons[5]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["reward.self_test.text=the young brother"],
            "hears 'the little brother was young' in the known clip, expected",
        ),
        (["reward.self_test.min_reward=0.9999"], "gives the known clip the reward .* expected at least"),
        (["reward.self_test.min_reward=0.99"], "scores .* once it went through the codec"),
        (["reward.asr=failing_recognisers:Absent"], "failing_recognisers"),
        (
            ["reward.asr=scripted_rewards:HearsNothing", "reward.nll=scripted_rewards:HearsNothing"],
            "hears '' in the known clip",
        ),
    ],
)
def test_a_reward_that_does_not_hear_is_not_served(overrides: list[str], message: str) -> None:
    with pytest.raises((RewardError, ValueError), match=message), reward_service(_config(*overrides)):
        pass


def test_the_shipped_clip_is_the_one_of_the_tests(spoken: dict[str, Audio]) -> None:
    assert (CLIP.samples == spoken[TEXT].samples).all()
    assert Path(str(resolve_path("builtin:tiny-clip"))).is_file()
