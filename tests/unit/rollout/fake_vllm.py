"""A server that speaks as much of vLLM's HTTP as is needed to drive errors; its samples are noise, not a model's.

Scores of given ids are `score`, all of them. A log-prob of -1 says that the wanted weights were loaded when the sample was drawn, -2 that they were not.
"""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

Answer = dict[str, Any]


class FakeVllm:
    """`tamper` sees each completion request and the good answer to it, and returns a status and what to answer."""

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size
        self.logprobs_mode = "processed_logprobs"
        self.weights = "default"
        self.tamper: Callable[[Answer, Answer], tuple[int, Any]] = lambda body, answer: (200, answer)
        self.bodies: list[Answer] = []
        self.calls: list[str] = []
        self.score = -1.0
        self.is_healthy = True
        self.refuses_weights = False
        self.is_paused = False
        self.is_sleeping = False
        self.url = ""

    def reply(self, path: str, body: Answer) -> tuple[int, Any]:
        self.calls.append(path)
        match path:
            case "/health":
                return (200 if self.is_healthy else 503), {}
            case "/v1/models":
                return 200, {"data": [{"id": "policy", "parent": None, "max_model_len": 256}]}
            case "/server_info":
                return 200, {"vllm_config": {"model_config": {"logprobs_mode": self.logprobs_mode, "model": "/m"}}}
            case "/weight_info":
                return 200, {"weight_version": self.weights}
            case "/update_weight_version":
                self.weights = body["new_version"]
                return 200, {"success": True}
            case "/collective_rpc":
                return (500, {"error": {"message": "no such file"}}) if self.refuses_weights else (200, {})
            case "/reset_prefix_cache":
                return 200, {"success": True}
            case "/is_paused":
                return 200, {"is_paused": self.is_paused}
            case "/is_sleeping":
                return 200, {"is_sleeping": self.is_sleeping}
            case "/pause" | "/resume":
                self.is_paused = path == "/pause"
                return 200, {}
            case "/sleep" | "/wake_up":
                self.is_sleeping = path == "/sleep"
                return 200, {}
            case "/v1/completions":
                return self.complete(body)
            case _:
                return 404, {"detail": "Not Found"}

    def complete(self, body: Answer) -> tuple[int, Any]:
        if max(body["allowed_token_ids"]) >= self.vocab_size:
            return 400, {"error": {"message": "allowed_token_ids contains out-of-vocab token id!"}}
        if "n" not in body:
            return 200, {"choices": []}
        if "logprob_token_ids" in body:
            scores = {f"token_id:{each}": self.score for each in body["logprob_token_ids"]}
            answers = range(len(body["prompt"]))
            return 200, {"choices": [{"index": index, "logprobs": {"top_logprobs": [scores]}} for index in answers]}
        self.bodies.append(body)
        stop = body["stop_token_ids"][0]
        code = next(each for each in body["allowed_token_ids"] if each != stop)
        ids = [code, code, stop][-body["max_tokens"] :]
        value = -2.0 if self.weights == "default" else -1.0
        choices = [
            {
                "index": index,
                "finish_reason": "stop",
                "token_ids": ids,
                "prompt_token_ids": body["prompt"],
                "logprobs": {
                    "token_logprobs": [value] * len(ids),
                    "tokens": [f"token_id:{each}" for each in ids],
                },
            }
            for index in range(body["n"])
        ]
        return self.tamper(body, {"choices": choices})


@contextmanager
def serving(fake: FakeVllm) -> Iterator[FakeVllm]:
    """Answers at `fake.url`, a free local port, until the context ends."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.answer({})

        def do_POST(self) -> None:
            self.answer(json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}"))

        def answer(self, body: Answer) -> None:
            status, answer = fake.reply(urlsplit(self.path).path, body)
            if status == 0:  # as a process that dies at this moment
                self.close_connection = True
                return
            content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            try:
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)
            except (BrokenPipeError, ConnectionResetError):
                pass  # the client has given up waiting

        def log_message(self, format: str, *args: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    fake.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield fake
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
