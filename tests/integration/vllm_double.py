"""A server that answers as vLLM does in development mode, with a model: it loads what it is told, draws and scores with it.

`python vllm_double.py --port N --model CHECKPOINT`, other arguments are ignored. `POST /fault` makes it go wrong from its
load number `since` + 1 on, `times` times, and start with CHECKPOINT again; `GET /loads` counts loads since then.
"""

import argparse
import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import torch
from safetensors import safe_open

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "rollout" / "sync"))

from broken_engines import BrokenEngine

from elocution.errors import ElocutionError
from elocution.rollout.base import RolloutRequest
from elocution.types import FinishReason

Answer = dict[str, Any]


class DoubleEngine(BrokenEngine):
    """The faults of `BrokenEngine`, for a number of times, and those of a process."""

    def __init__(self, base: Path, fault: str = "no op", since: int = 10**9, times: int = 10**9) -> None:
        super().__init__(base, fault, since=since)
        self.last = since + times
        self.released = threading.Event()

    def load_weights(self, directory: Path, version: int) -> Any:
        if self.loads >= self.last:
            self.since = 10**9
        return super().load_weights(directory, version)

    load_adapter = load_weights

    def _kept(self, directory: Path) -> Path:
        return directory if self.fault != "old weights" else self.previous_of(directory)

    def previous_of(self, directory: Path) -> Path:
        return super()._kept(directory)

    def _hangs(self, directory: Path, version: int) -> None:
        self.released.wait()

    def _dies(self, directory: Path, version: int) -> None:
        os._exit(1)


class Double:
    """What the server holds, and its answer to each request."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.engine = DoubleEngine(base)
        self.turn = threading.Lock()
        self.weights, self.adapters, self.is_paused = "default", set[str](), False

    def reply(self, path: str, body: Answer) -> tuple[int, Any]:
        match path:
            case "/v1/models":
                models = [{"id": "policy", "parent": None, "max_model_len": 512}]
                return 200, {"data": models + [{"id": name, "parent": "policy"} for name in sorted(self.adapters)]}
            case "/server_info":
                return 200, {"vllm_config": {"model_config": {"logprobs_mode": "processed_logprobs"}}}
            case "/weight_info":
                return 200, {"weight_version": self.weights}
            case "/update_weight_version":
                self.weights = body["new_version"]
                return 200, {"success": True}
            case "/collective_rpc":
                return self.load(Path(body["kwargs"]["weights_path"]), is_adapter=False)
            case "/v1/load_lora_adapter":
                self.adapters.add(body["lora_name"])
                return self.load(Path(body["lora_path"]), is_adapter=True)
            case "/v1/unload_lora_adapter":
                self.adapters.discard(body["lora_name"])
                return 200, {}
            case "/pause" | "/resume":
                self.is_paused = path == "/pause"
                return 200, {}
            case "/is_paused":
                return 200, {"is_paused": self.is_paused}
            case "/is_sleeping":
                return 200, {"is_sleeping": False}
            case "/health" | "/reset_prefix_cache":
                return 200, {"success": True}
            case "/v1/completions":
                return self.complete(body)
            case "/loads":
                return 200, {"loads": self.engine.loads}
            case "/fault":
                self.engine.released.set()
                with self.turn:
                    self.engine = DoubleEngine(self.base, **body)
                    self.weights = "default"
                return 200, {}
            case _:
                return 404, {"detail": "Not Found"}

    def load(self, directory: Path, *, is_adapter: bool) -> tuple[int, Any]:
        with self.turn:
            if not is_adapter and not any(
                "lm_head.weight" in safe_open(file, framework="pt").keys()  # noqa: SIM118  (no mapping)
                for file in directory.glob("*.safetensors")
            ):
                return 500, {"error": {"message": "no lm_head.weight"}}
            try:
                self.engine.load_weights(directory, 0)
            except ElocutionError as error:
                return 500, {"error": {"message": str(error)}}
        return 200, {}

    def complete(self, body: Answer) -> tuple[int, Any]:
        if self.is_paused:
            return 503, {"error": {"message": "paused"}}
        with self.turn:
            policy = self.engine._loaded()
            if max(body["allowed_token_ids"]) >= policy.model.config.vocab_size:
                return 400, {"error": {"message": "allowed_token_ids contains out-of-vocab token id!"}}
            if "temperature" not in body:
                return 200, {"choices": []}
            assert body["allowed_token_ids"] == policy.legal_ids.tolist()
            choices = self.score(body) if "logprob_token_ids" in body else [self.draw(body)]
        return 200, {"choices": [{"index": index, **choice} for index, choice in enumerate(choices)]}

    def draw(self, body: Answer) -> Answer:
        self.engine.temperature = body["temperature"]
        request = RolloutRequest(np.array(body["prompt"]), ((body["seed"],),), body["max_tokens"])
        ((_, _, completion),) = self.engine.stream([request])
        ids = completion.ids[:, 0].tolist()
        return {
            "finish_reason": "stop" if completion.finish_reason is FinishReason.STOP else "length",
            "token_ids": ids,
            "prompt_token_ids": body["prompt"],
            "logprobs": {
                "token_logprobs": completion.rollout_logprobs[:, 0].tolist(),
                "tokens": [f"token_id:{each}" for each in ids],
            },
        }

    @torch.inference_mode()
    def score(self, body: Answer) -> list[Answer]:
        policy, prompts = self.engine._loaded(), [np.array(prompt) for prompt in body["prompt"]]
        model = policy.incremental()
        model.start(len(prompts), max(map(len, prompts)))
        logits = model.join(prompts, torch.arange(len(prompts))).groups[0][0][:, 0]
        logprobs = torch.log_softmax(logits.float() / body["temperature"], dim=-1)
        places = torch.searchsorted(policy.legal_ids, torch.tensor(body["logprob_token_ids"]))
        names = [f"token_id:{each}" for each in body["logprob_token_ids"]]
        return [
            {"logprobs": {"top_logprobs": [dict(zip(names, row, strict=True))]}} for row in logprobs[:, places].tolist()
        ]


def serve(double: Double, port: int) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.answer({})

        def do_POST(self) -> None:
            self.answer(json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}"))

        def answer(self, body: Answer) -> None:
            status, answer = double.reply(urlsplit(self.path).path, body)
            content = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None: ...

    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int)
    parser.add_argument("--model", type=Path)
    chosen, _ = parser.parse_known_args()
    torch.set_num_threads(1)
    double = Double(chosen.model)
    if fault := os.environ.get("VLLM_DOUBLE_FAULT"):
        double.engine = DoubleEngine(chosen.model, **json.loads(fault))
    serve(double, chosen.port)
