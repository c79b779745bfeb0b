"""`elocution serve rewards` as a process of its own: Triton's client, a training run, the end of the server."""

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest
from tritonclient.http import InferenceServerClient, InferInput, InferRequestedOutput
from tritonclient.utils import InferenceServerException

from elocution.assets import resolve_path
from elocution.codecs import load_codec
from elocution.config.load import load_config
from elocution.rewards import load_reward
from elocution.testing.run_directory import read_rows
from elocution.train.loop import train
from elocution.types import Audio, Completion, FinishReason, Outcome, Rollout, Utterance

CODEC = load_codec("tiny", resolve_path("builtin:tiny-codec"))
NAME = "token2wav_asr"


class Server:
    """A server process and what it printed until it was ready."""

    def __init__(self, *arguments: str, modules: Path | None = None) -> None:
        """`modules` is a folder with rewards of one's own."""
        command = [sys.executable, "-m", "elocution", "serve", "rewards", "--port", "0", "--set", "reward.workers=2"]
        self.process = subprocess.Popen(
            [*command, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join([*([str(modules)] if modules else []), *sys.path])},
        )
        self.greeting = ""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.greeting += line
            if line.startswith("try: "):
                break
        found = re.search(r"at (http://\S+)", self.greeting)
        assert found, self.process.communicate()
        self.url = found[1]

    def stop(self) -> tuple[int, str]:
        """Status and standard error once SIGTERM has been obeyed."""
        self.process.send_signal(signal.SIGTERM)
        _, stderr = self.process.communicate(timeout=60)
        return self.process.returncode, stderr


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    server = Server()
    yield server
    assert server.stop() == (0, "")


@pytest.fixture
def triton(server: Server) -> Iterator[InferenceServerClient]:
    with InferenceServerClient(server.url.removeprefix("http://"), concurrency=8) as client:
        yield client


def _inputs(clips: list[list[int]], texts: list[str], *, binary: bool = True) -> list[InferInput]:
    tokens = np.zeros((len(clips), max(map(len, clips))), np.int32)
    for row, clip in zip(tokens, clips, strict=True):
        row[: len(clip)] = clip
    arrays = {
        "TOKENS": tokens,
        "TOKEN_LENS": np.array([[len(clip)] for clip in clips], np.int32),
        "GT_TEXT": np.array([[text] for text in texts], dtype=object),
    }
    inputs = []
    for name, array in arrays.items():
        one = InferInput(name, list(array.shape), "BYTES" if array.dtype == object else "INT32")
        one.set_data_from_numpy(array, binary_data=binary)
        inputs.append(one)
    return inputs


def _codes(spoken: dict[str, Audio]) -> dict[str, list[int]]:
    return {text: CODEC.encode(clip)[:, 0].tolist() for text, clip in spoken.items()}


def _texts(array: Any) -> list[str]:
    return [text if isinstance(text, str) else text.decode() for text in array.ravel().tolist()]


def test_tritons_client_finds_server_and_models_alive(triton: InferenceServerClient) -> None:
    assert triton.is_server_live()
    assert triton.is_server_ready()
    assert triton.is_model_ready(NAME)
    assert triton.is_model_ready(f"{NAME}_wav", "1")
    assert not triton.is_model_ready("other")
    assert triton.get_server_metadata()["name"] == "elocution"
    metadata = triton.get_model_metadata(NAME)
    names = [one["name"] for one in metadata["inputs"]]
    assert names[:4] == ["TOKENS", "TOKEN_LENS", "GT_TEXT", "LANGUAGE"]
    assert set(names[4:]) == {
        "PROMPT_WAV",
        "PROMPT_WAV_LENS",
        "PROMPT_SAMPLE_RATE",
        "PROMPT_TEXT",
        "DESCRIPTION",
        "EMOTION",
    }
    assert [one["name"] for one in metadata["outputs"]][:2] == ["REWARDS", "TRANSCRIPTS"]


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("compression", [None, "gzip", "deflate"])
def test_tritons_client_gets_scores_in_every_encoding(
    triton: InferenceServerClient, spoken: dict[str, Audio], binary: bool, compression: str | None
) -> None:
    codes = _codes(spoken)
    names = ("TRANSCRIPTS", "REWARDS", "STATUS", "MEASURES")
    result = triton.infer(
        NAME,
        _inputs(list(codes.values()), list(codes), binary=binary),
        outputs=[InferRequestedOutput(name, binary_data=binary) for name in names],
        request_id="r1",
        request_compression_algorithm=compression,
        response_compression_algorithm=compression,
    )
    assert result.get_response()["id"] == "r1"
    rewards = result.as_numpy("REWARDS")
    assert (rewards.dtype, rewards.shape) == (np.float32, (len(codes), 1))
    assert (rewards > 0.7).all()
    assert _texts(result.as_numpy("TRANSCRIPTS")) == list(codes)
    assert _texts(result.as_numpy("STATUS")) == ["scored"] * len(codes)


def test_without_named_outputs_tritons_client_gets_the_published_two(
    triton: InferenceServerClient, spoken: dict[str, Audio]
) -> None:
    codes = _codes(spoken)
    result = triton.infer(NAME, _inputs(list(codes.values()), list(codes)))
    assert [one["name"] for one in result.get_response()["outputs"]] == ["REWARDS", "TRANSCRIPTS"]
    assert (result.as_numpy("REWARDS") > 0.7).all()


def test_many_clients_at_once_get_each_their_own_answer(
    triton: InferenceServerClient, spoken: dict[str, Audio]
) -> None:
    """Each asks for right and wrong texts of one clip; the answers equal those of the reward in-process."""
    codes = _codes(spoken)
    texts = list(codes)
    pairs = [(text, wanted) for text in texts for wanted in texts]
    config = load_config(None, ["reward.workers=2"])
    rollouts = [_rollout(codes[text], wanted) for text, wanted in pairs]
    with load_reward(config.reward) as reward:
        expected = [score.value for score in reward(rollouts)]
    waiting = [
        triton.async_infer(
            NAME, _inputs([codes[text]], [wanted]), outputs=[InferRequestedOutput("VALUES")], request_id=str(index)
        )
        for index, (text, wanted) in enumerate(pairs)
    ]
    results = [one.get_result() for one in waiting]
    assert [result.get_response()["id"] for result in results] == [str(index) for index in range(len(pairs))]
    assert [result.as_numpy("VALUES").item() for result in results] == expected


def _rollout(codes: list[int], text: str) -> Rollout:
    completion = Completion(np.zeros((0, 1), np.int64), np.zeros((0, 1), np.float32), FinishReason.STOP, 0)
    grid = np.array(codes, np.int64)[:, None]
    return Rollout(Utterance("u", text), completion, grid, CODEC.decode([grid])[0], Outcome.SPEECH)


@pytest.mark.slow
def test_s02_s05_a_clip_that_hangs_one_that_raises_and_one_of_nan_spoil_no_other_clients_answer(
    spoken: dict[str, Audio],
) -> None:
    settings = ("reward.type=scripted_rewards:ByText", "reward.timeout_s=2.0", 'reward.self_test.audio=""')
    server = Server(
        *(word for setting in settings for word in ("--set", setting)),
        modules=Path(__file__).parents[1] / "unit" / "serve",
    )
    codes = next(iter(_codes(spoken).values()))
    texts = ["one", "hang", "nine", "raise", "seven", "nan", "six"]
    try:
        with InferenceServerClient(server.url.removeprefix("http://"), concurrency=len(texts)) as client:
            names = ("VALUES", "STATUS", "ERROR")
            asked = [
                client.async_infer(
                    NAME, _inputs([codes], [text]), outputs=[InferRequestedOutput(name) for name in names]
                )
                for text in texts
            ]
            answers = [one.get_result() for one in asked]
            values, statuses, errors = zip(
                *([answer.as_numpy(name).ravel()[0] for name in names] for answer in answers), strict=True
            )
        assert np.isnan(values).tolist() == [False, True] * 3 + [False]
        assert list(map(bytes.decode, statuses)) == ["scored", "unscored"] * 3 + ["scored"]
        reasons = list(map(bytes.decode, errors))
        assert ["longer than 2 s" in reasons[1], "is broken" in reasons[3], "NaN" in reasons[5]] == [True] * 3
    finally:
        assert server.stop()[0] == 0


def test_tritons_client_gets_errors_by_name(triton: InferenceServerClient) -> None:
    for inputs, message, status in (
        (_inputs([[5000]], ["one"]), "TOKENS row 0 spans 5000 to 5000", "400"),
        (_inputs([[1]], [""]), "GT_TEXT row 0 holds no word", "400"),
        (_inputs([[1]], ["one"])[:2], "the input GT_TEXT is missing", "400"),
    ):
        with pytest.raises(InferenceServerException, match=message) as failed:
            triton.infer(NAME, inputs)
        assert status in str(failed.value.status())
    with pytest.raises(InferenceServerException, match="there is no model 'other'"):
        triton.infer("other", _inputs([[1]], ["one"]))
    assert triton.is_server_ready()


def test_the_curl_line_that_it_prints_works_as_printed(server: Server) -> None:
    command = shlex.split(server.greeting.rpartition("try: ")[2])
    assert command[:2] == ["curl", "-s"]
    answer = httpx2.post(command[2], content=command[4])  # what curl does with -d
    assert answer.status_code == 200
    assert answer.json()["outputs"][0]["name"] == "REWARDS"


# Small enough for a test; everything else is the embedded recipe.
SMALL = [
    *("train.prompts_per_step=2", "rollout.group_size=3", "eval.sentences=2", "eval.probe_sentences=0"),
    *("reward.workers=2", "train.steps=2"),
]


def _untimed(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {
            key: value
            for key, value in row.items()
            if not key.startswith(("time/", "idle/", "memory/")) and key != "duration_s"
        }
        for row in rows
    ]


@pytest.mark.slow
def test_a_run_scored_by_the_server_is_the_run_scored_in_process(server: Server, tmp_path: Path) -> None:
    remote = ["reward.type=remote", f'reward.remote.urls=["{server.url}"]', "reward.remote.retries=0"]
    for name, settings in (("local", SMALL), ("remote", [*SMALL, *remote])):
        train(load_config(None, settings), tmp_path / name)
    for file in ("metrics.jsonl", "rollouts.jsonl", "evaluations.jsonl"):
        one, other = (_untimed(read_rows(tmp_path / name / file)) for name in ("local", "remote"))
        assert one == other
        assert one


@pytest.mark.slow
def test_sigterm_answers_what_is_under_way_and_leaves_nothing(spoken: dict[str, Audio]) -> None:
    server = Server()
    workers = [int(pid) for pid in _children(server.process.pid)]
    assert workers
    codes = next(iter(_codes(spoken).values()))
    body = {
        "inputs": [
            {"name": "TOKENS", "shape": [16, len(codes)], "datatype": "INT32", "data": [codes] * 16},
            {"name": "TOKEN_LENS", "shape": [16, 1], "datatype": "INT32", "data": [len(codes)] * 16},
            {
                "name": "GT_TEXT",
                "shape": [16, 1],
                "datatype": "BYTES",
                "data": [f"text {n}" for n in "abcdefghijklmnop"],
            },
        ]
    }
    answers: list[Any] = []
    asking = threading.Thread(
        target=lambda: answers.append(httpx2.post(f"{server.url}/v2/models/{NAME}/infer", json=body, timeout=60))
    )
    batches = _count_batches(server)
    asking.start()
    deadline = time.monotonic() + 20
    while _count_batches(server) == batches:
        assert time.monotonic() < deadline
    assert not answers
    status, stderr = server.stop()
    asking.join()
    assert (status, stderr) == (0, "")
    assert answers[0].status_code == 200
    assert len(answers[0].json()["outputs"][0]["data"]) == 16
    deadline = time.monotonic() + 20
    while any(Path(f"/proc/{pid}").exists() for pid in workers):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _count_batches(server: Server) -> str:
    """The line of the metrics that says how many batches have been begun."""
    found = re.search(r"^elocution_batch_clips_count .*$", httpx2.get(f"{server.url}/metrics").text, re.MULTILINE)
    assert found
    return found[0]


def _children(pid: int) -> list[str]:
    """Those of all its threads."""
    return [child for path in Path(f"/proc/{pid}/task").glob("*/children") for child in path.read_text().split()]


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def test_metrics_may_have_a_port_of_their_own() -> None:
    port = _free_port()
    server = Server("--metrics-port", str(port), "--model-name", "mine")
    try:
        assert "elocution_clips_total" in httpx2.get(f"http://127.0.0.1:{port}/metrics").text
        assert httpx2.get(f"{server.url}/metrics").status_code == 404
        assert httpx2.get(f"{server.url}/v2/models/mine_wav").json()["name"] == "mine_wav"
    finally:
        assert server.stop()[0] == 0


@pytest.mark.parametrize("taken", ["--port", "--metrics-port"])
def test_a_port_in_use_is_named(server: Server, taken: str) -> None:
    port = server.url.rpartition(":")[2]
    arguments = ["serve", "rewards", "--port", "0", taken, port, "--set", "reward.workers=1"]
    done = subprocess.run(
        [sys.executable, "-m", "elocution", *arguments], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 1
    assert f"error: port {port} of 127.0.0.1 is in use" in done.stderr
    assert "Traceback" not in done.stderr
