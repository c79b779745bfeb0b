import asyncio
import json
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx2
import pytest

from elocution.errors import ConfigError, EngineError
from elocution.rollout.sglang_client import ServerSettings, SglangServers
from elocution.rollout.sglang_protocol import GenerateRequest, SamplingParams


def requests(count: int = 1) -> list[GenerateRequest]:
    return [
        GenerateRequest(rid="r", input_ids=(index,), sampling_params=SamplingParams(max_new_tokens=2))
        for index in range(count)
    ]


def answer(body: dict[str, Any], **meta: Any) -> dict[str, Any]:
    info = {"id": body["rid"], "finish_reason": {"type": "length", "length": 1}, "prompt_tokens": 1}
    return {"output_ids": body["input_ids"], "meta_info": info | {"completion_tokens": 1} | meta}


class Script:
    """Answers each call to /generate by the next step; the last one stays. A step is a status, an error or "hang"."""

    def __init__(self, *steps: Any) -> None:
        self.steps = list(steps)
        self.hosts: list[str] = []
        self.paths: list[str] = []

    async def handle(self, request: httpx2.Request) -> httpx2.Response:
        self.paths.append(request.url.path)
        if request.url.path != "/generate":
            return httpx2.Response(200)
        self.hosts.append(request.url.host)
        step = self.steps.pop(0) if len(self.steps) > 1 else self.steps[0]
        body = json.loads(request.content)
        if isinstance(step, Exception):
            raise step
        if step == "hang":
            await asyncio.sleep(3600)
        if isinstance(step, dict):
            return httpx2.Response(200, json=answer(body, **step))
        return httpx2.Response(step, json=answer(body))


def servers(script: Script, *urls: str, **settings: Any) -> SglangServers:
    chosen = ServerSettings(urls or ("http://one",), retry_wait_s=0.0, **settings)
    return SglangServers(chosen, transport=httpx2.MockTransport(script.handle))


def test_answers_come_in_the_order_of_the_requests() -> None:
    answers = servers(Script(200), max_in_flight=3).generate(requests(20))
    assert [one.output_ids for one in answers] == [[index] for index in range(20)]


@pytest.mark.parametrize("failure", [httpx2.ConnectError("refused"), httpx2.ReadError("cut"), 429, 500, 503])
def test_a_passing_failure_is_tried_again_and_counted(failure: Any) -> None:
    pool = servers(Script(failure, failure, 200))
    assert len(pool.generate(requests())) == 1
    assert pool.counts.requests == 1
    assert pool.counts.retries == 2


def test_tries_are_bounded() -> None:
    script = Script(503)
    with pytest.raises(EngineError, match=r"failed 3 times, last at http://one: status 503"):
        servers(script, max_retries=2).generate(requests())
    assert len(script.hosts) == 3


def test_a_request_that_is_refused_for_its_own_fault_is_not_tried_again() -> None:
    script = Script(400)
    with pytest.raises(EngineError, match="refused a request, status 400"):
        servers(script).generate(requests())
    assert len(script.hosts) == 1


def test_an_aborted_request_is_drawn_again() -> None:
    pool = servers(Script({"finish_reason": {"type": "abort", "message": "paused"}}, 200))
    assert pool.generate(requests())[0].meta_info.finish_reason.type == "length"
    assert pool.counts.aborted == 1


def test_a_late_request_is_given_up_at_its_deadline_and_aborted_on_the_server() -> None:
    script = Script("hang", 200)
    pool = servers(script, timeout_s=0.05)
    assert len(pool.generate(requests())) == 1
    assert pool.counts.late == 1
    assert script.paths == ["/generate", "/abort_request", "/generate"]


def test_an_answer_to_another_request_is_an_error() -> None:
    with pytest.raises(EngineError, match="answers are crossed"):
        servers(Script({"id": "someone else's"})).generate(requests())


def test_every_try_has_an_id_of_its_own() -> None:
    seen: list[str] = []

    async def handle(request: httpx2.Request) -> httpx2.Response:
        body = json.loads(request.content)
        seen.append(body["rid"])
        return httpx2.Response(503 if len(seen) == 1 else 200, json=answer(body))

    pool = SglangServers(ServerSettings(("http://one",), retry_wait_s=0.0), transport=httpx2.MockTransport(handle))
    pool.generate(requests())
    assert len(set(seen)) == 2


def test_requests_are_spread_evenly_over_servers() -> None:
    script = Script(200)
    servers(script, "http://a", "http://b", "http://c", max_in_flight=2).generate(requests(6))
    assert Counter(script.hosts) == {"a": 2, "b": 2, "c": 2}


def test_a_server_that_refuses_at_once_does_not_draw_all_requests_to_itself() -> None:
    async def handle(request: httpx2.Request) -> httpx2.Response:
        hosts.append(request.url.host)
        if request.url.host == "dead":
            raise httpx2.ConnectError("refused")
        await asyncio.sleep(0.001)
        return httpx2.Response(200, json=answer(json.loads(request.content)))

    hosts: list[str] = []
    settings = ServerSettings(("http://dead", "http://live"), max_in_flight=2, retry_wait_s=0.0)
    answers = SglangServers(settings, transport=httpx2.MockTransport(handle)).generate(requests(30))
    assert len(answers) == 30
    assert hosts.count("dead") <= 4


def test_no_more_requests_run_at_once_than_servers_take() -> None:
    async def handle(request: httpx2.Request) -> httpx2.Response:
        running.append(running[-1] + 1)
        await asyncio.sleep(0.002)
        running.append(running[-1] - 1)
        return httpx2.Response(200, json=answer(json.loads(request.content)))

    running = [0]
    settings = ServerSettings(("http://one",), max_in_flight=3)
    SglangServers(settings, transport=httpx2.MockTransport(handle)).generate(requests(12))
    assert max(running) == 3


def test_what_is_no_answer_of_sglang_is_named() -> None:
    async def handle(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, text="<html>gateway</html>")

    pool = SglangServers(ServerSettings(("http://one",)), transport=httpx2.MockTransport(handle))
    with pytest.raises(EngineError, match="http://one answered what is no answer of SGLang"):
        pool.generate(requests())
    with pytest.raises(EngineError, match="http://one/model_info answered what is no answer of SGLang"):
        pool.model_info()


def test_a_server_that_is_down_is_named_with_its_address() -> None:
    async def handle(request: httpx2.Request) -> httpx2.Response:
        if request.url.host == "b":
            raise httpx2.ConnectError("refused")
        return httpx2.Response(200)

    pool = SglangServers(ServerSettings(("http://a", "http://b")), transport=httpx2.MockTransport(handle))
    with pytest.raises(EngineError, match=r"cannot reach http://b/health: ConnectError"):
        pool.check_health()


@pytest.mark.parametrize("urls", [(), ("http://a", "http://a/")])
def test_urls_must_be_given_and_differ(urls: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match="at least one URL"):
        SglangServers(ServerSettings(urls))


@pytest.fixture
def real_url() -> Iterator[str]:
    """A server behind a real socket, which echoes the key that it was sent as its weight version."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            sent = json.dumps(answer(body, weight_version=self.headers["Authorization"])).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(sent)))
            self.end_headers()
            self.wfile.write(sent)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


def test_requests_go_over_a_real_socket_with_their_key(real_url: str) -> None:
    pool = SglangServers(ServerSettings((real_url,), api_key="secret"))
    for _ in range(2):  # a connection of an earlier call must not be used in the next one's event loop
        answers = pool.generate(requests(5))
        assert [one.output_ids for one in answers] == [[0], [1], [2], [3], [4]]
        assert {one.meta_info.weight_version for one in answers} == {"Bearer secret"}
    assert "secret" not in repr(pool.settings)
