"""A KServe v2 server over a real socket that misbehaves by script."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np

from elocution.kserve import (
    JSON_LENGTH_HEADER,
    InferRequest,
    Message,
    Tensor,
    decode_request,
    encode_response,
    text_tensor,
    texts_of,
)

__all__ = ["Script", "good_answer", "scripted_server"]


@dataclass
class Script:
    """`behave` answers a request that asks for speech to be scored; the start-up test's silence always scores 0.

    It gives a message, an HTTP status, or None after which the connection is cut.
    """

    behave: Callable[[InferRequest], Message | int | None]
    version: str = "v1"
    asked: list[list[str]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    drip_s: float = 0.0
    url: str = ""
    inputs: tuple[str, ...] = ("WAV",)

    @property
    def metadata(self) -> dict[str, Any]:
        return {"parameters": {"reward_version": self.version}, "inputs": [{"name": name} for name in self.inputs]}


def good_answer(request: InferRequest, **changes: Any) -> Message:
    """Scores each clip by its first sample, silence 0; `changes` replace columns of outputs, `id` the id."""
    waves = request.inputs["WAV"].values
    count = len(waves)
    columns: dict[str, list[Any]] = {
        "VALUES": [float(wave[0]) for wave in waves],
        "STATUS": ["scored"] * count,
        "ERROR": [""] * count,
        "TRANSCRIPTS": texts_of(request.inputs["GT_TEXT"]),
        "PARTS": ["{}"] * count,
        "MEASURES": ["{}"] * count,
    } | {name: column for name, column in changes.items() if name != "id"}
    tensors = [
        Tensor(name, "FP64", np.array(column)[:, None]) if name == "VALUES" else text_tensor(name, column)
        for name, column in columns.items()
        if column
    ]
    names = [tensor.name for tensor in tensors]
    request_id = changes.get("id", request.id)
    return encode_response(tensors, model_name="m", model_version="1", request_id=request_id, binary=names)


@contextmanager
def scripted_server(script: Script) -> Iterator[str]:
    """The URL of a server that follows `script`."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None: ...

        def do_GET(self) -> None:
            self._send(Message(json.dumps(script.metadata).encode(), None))

        def do_POST(self) -> None:
            script.headers.append(dict(self.headers))
            body = self.rfile.read(int(self.headers["Content-Length"]))
            request = decode_request(body, int(self.headers[JSON_LENGTH_HEADER]))
            if not request.inputs["WAV"].values.any():
                self._send(good_answer(request))
                return
            script.asked.append(texts_of(request.inputs["GT_TEXT"]))
            answer = script.behave(request)
            if answer is None:
                self.close_connection = True
            elif isinstance(answer, int):
                self.send_response(answer)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"no")
            else:
                self._send(answer)

        def _send(self, message: Message) -> None:
            self.send_response(200)
            for name, value in message.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(message.body)))
            self.end_headers()
            try:
                for byte in [message.body] if not script.drip_s else [bytes([one]) for one in message.body]:
                    self.wfile.write(byte)
                    time.sleep(script.drip_s)
            except OSError:  # the client went away, as a test may want
                self.close_connection = True

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            script.url = f"http://127.0.0.1:{server.server_port}"
            yield script.url
        finally:
            server.shutdown()
            thread.join()
