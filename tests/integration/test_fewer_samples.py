"""Servers in processes of their own behind a proxy that drops a sample of an answer: asked again, or named; never filled up."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2
import pytest
from served_parts import running_double

from elocution.assets import resolve_path
from elocution.config.load import load_config
from elocution.errors import EngineError, EngineUnavailable
from elocution.policies.llasa import LlasaPolicy
from elocution.rollout.base import RolloutRequest, in_order
from elocution.train.engines import Engines, build_engines
from elocution.types import Utterance

TEXTS = ("the green house", "mary painted the house")
Drop = Callable[[str, Any, Any], Any]


@contextmanager
def proxy(url: str, drop: Drop) -> Iterator[str]:
    """The URL of a proxy of `url`; `drop` gets path, request and answer of each call, and returns what is answered."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.forward()

        def do_POST(self) -> None:
            self.forward()

        def forward(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            answer = httpx2.request(self.command, url + self.path, content=body, timeout=60)
            content = answer.content
            if body and content:
                content = json.dumps(drop(self.path, json.loads(body), answer.json())).encode()
            self.send_response(answer.status_code)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def published(engine: str, url: str, policy: LlasaPolicy, path: Path) -> Iterator[Engines]:
    small = ("rollout.sync.probes=2", "rollout.sync.probe_codes=6", "rollout.sync.max_retries=0")
    place = (f"rollout.engine={engine}", f"rollout.server.urls=['{url}']", "rollout.server.retries=1")
    config = load_config(None, [*place, *small])
    engines = build_engines(config, policy, policy, dict(policy.model.named_parameters()), path)
    engines.start([Utterance(text, text) for text in TEXTS])
    engines.rollout.publish(0)
    yield engines
    engines.stop()


class Dropping:
    """Empties the answer to a draw, `times` times, once `begin` was called."""

    def __init__(self, path: str, drop: Callable[[Any], Any], is_draw: Callable[[Any], bool]) -> None:
        self.path, self.drop, self.is_draw = path, drop, is_draw
        self.times = 0

    def __call__(self, path: str, body: Any, answer: Any) -> Any:
        if path != self.path or not self.is_draw(body) or not self.times:
            return answer
        self.times -= 1
        return self.drop(answer)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_an_answer_with_a_sample_less_is_asked_for_again_or_named(tmp_path: Path, engine: str) -> None:
    policy = LlasaPolicy.from_pretrained(resolve_path("builtin:tiny-llasa"))
    policy.model.eval()
    asked = [RolloutRequest(policy.prompt_ids(Utterance(text, text)), ((0,), (1,)), 20) for text in TEXTS]
    dropping = {
        "vllm": Dropping("/v1/completions", lambda a: a | {"choices": []}, lambda b: "logprob_token_ids" not in b),
        "sglang": Dropping("/generate", lambda a: [], lambda b: "token_ids_logprob" not in b),
    }[engine]
    script = Path(__file__).with_name({"vllm": "vllm_double.py", "sglang": "tts_double.py"}[engine])
    with (
        running_double(script, str(resolve_path("builtin:tiny-llasa")), tmp_path) as server,
        proxy(server.url, dropping) as url,
        published(engine, url, policy, tmp_path) as engines,
    ):
        whole = in_order(asked, engines.rollout.stream(asked))
        dropping.times = 1
        if engine == "vllm":
            again = in_order(asked, engines.rollout.stream(asked))
            assert engines.metrics()["engine/retries"] == 1
            assert [[c.ids.tolist() for c in group] for group in again] == [
                [c.ids.tolist() for c in group] for group in whole
            ]
            dropping.times = 100
            with pytest.raises(EngineUnavailable, match="gave 0 samples, 1 were asked for"):
                list(engines.rollout.stream(asked))
        else:
            with pytest.raises(EngineError, match="answered what is no answer of SGLang"):
                list(engines.rollout.stream(asked))
