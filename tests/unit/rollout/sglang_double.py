"""A server with SGLang's messages over a real policy: full-vocabulary logits, processor, temperature, softmax, draw.

It loads what it is told to load and refuses fields that SGLang's source does not know. Faults are put in by tests.
"""

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import dill
import httpx2
import torch

from elocution.policies import load_policy
from elocution.policies.llasa import LlasaPolicy

FIELDS: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "data" / "oracles" / "sglang_fields.json").read_text(encoding="utf-8")
)
REQUEST_FIELDS = set(FIELDS["classes"]["sglang/srt/managers/io_struct.py:GenerateReqInput"])
SAMPLING_FIELDS = set(FIELDS["classes"]["sglang/api/v1/api_types.py:SamplingParams"])

Interrupt = Callable[[dict[str, Any]], Awaitable[httpx2.Response | None]]


class SglangDouble:
    """One server at any URL. `calls` holds (path, body) in order; `interrupt` may answer in its place."""

    def __init__(self, *, vocabulary: int) -> None:
        self.policy: LlasaPolicy | None = None
        self.adapters: dict[str, LlasaPolicy] = {}
        self.vocabulary = vocabulary
        self.version, self.path = "default", "nothing"
        self.is_paused = False
        self.calls: list[tuple[str, Any]] = []
        self.headers: list[httpx2.Headers] = []
        self.interrupt: Interrupt | None = None
        self.mangle: Callable[[dict[str, Any]], dict[str, Any]] = lambda answer: answer
        self.preferred: dict[str, Any] | None = None
        self.architectures: list[str] | None = None
        self.applies_mask = self.applies_temperature = self.loads_weights = True

    @property
    def transport(self) -> httpx2.MockTransport:
        return httpx2.MockTransport(self.handle)

    def bodies(self, path: str) -> list[Any]:
        return [body for called, body in self.calls if called == path]

    async def handle(self, request: httpx2.Request) -> httpx2.Response:
        path = request.url.path
        assert request.method in FIELDS["endpoints"][path]
        body = json.loads(request.content) if request.content else None
        self.calls.append((path, body))
        self.headers.append(request.headers)
        if path == "/generate":
            if self.interrupt is not None and (answer := await self.interrupt(body)) is not None:
                return answer
            return httpx2.Response(200, json=self.mangle(self.generate(body)))
        return self.control(path, body)

    def control(self, path: str, body: Any) -> httpx2.Response:
        if path == "/model_info":
            info = {"model_path": self.path, "is_generation": True, "weight_version": self.version}
            return httpx2.Response(
                200, json=info | {"preferred_sampling_params": self.preferred, "architectures": self.architectures}
            )
        if path == "/pause_generation":
            self.is_paused = True
        elif path == "/continue_generation":
            self.is_paused = False
        elif path == "/update_weights_from_disk":
            assert self.is_paused
            if not Path(body["model_path"], "model.safetensors").is_file():
                return httpx2.Response(400, json={"success": False, "message": "Failed to update weights"})
            if self.loads_weights or self.policy is None:
                self.policy = LlasaPolicy.from_pretrained(Path(body["model_path"]))
            self.path, self.version = body["model_path"], body["weight_version"]
            return httpx2.Response(200, json={"success": True, "message": "", "num_paused_requests": 0})
        elif path == "/load_lora_adapter":
            self.adapters[body["lora_name"]] = load_policy("llasa", Path(body["lora_path"]))
            return httpx2.Response(200, json={"success": True, "loaded_adapters": dict.fromkeys(self.adapters, "")})
        elif path == "/unload_lora_adapter":
            self.adapters.pop(body["lora_name"], None)  # one double stands for all servers
            return httpx2.Response(200, json={"success": True, "loaded_adapters": dict.fromkeys(self.adapters, "")})
        elif path == "/update_weight_version":
            self.version = body["new_version"]
            return httpx2.Response(200, json={"success": True, "message": ""})
        return httpx2.Response(200)

    @torch.inference_mode()
    def generate(self, body: dict[str, Any]) -> dict[str, Any]:
        assert not self.is_paused
        assert body.keys() <= REQUEST_FIELDS
        params = body["sampling_params"]
        assert params.keys() <= SAMPLING_FIELDS
        policy = self.adapters[body["lora_path"]] if "lora_path" in body else self.policy
        assert policy is not None
        generator = torch.Generator().manual_seed(params["sampling_seed"])
        ids, logprobs = list(body["input_ids"]), []
        reason: dict[str, Any] = {"type": "length", "length": params["max_new_tokens"]}
        for _ in range(params["max_new_tokens"]):
            logits = policy.llama(torch.tensor([ids])).logits[:, -1, : self.vocabulary]
            if "custom_logit_processor" in body and self.applies_mask:
                kind = dill.loads(bytes.fromhex(json.loads(body["custom_logit_processor"])["callable"]))
                logits = kind()(logits, [params["custom_params"]])
            if self.applies_temperature:
                logits = logits / params["temperature"]
            drawn = int(torch.multinomial(logits.softmax(-1), 1, generator=generator))
            ids.append(drawn)
            logprobs.append((float(logits.log_softmax(-1)[0, drawn]), drawn, None))
            if drawn in params["stop_token_ids"]:
                reason = {"type": "stop", "matched": drawn}
                break
        start = len(body["input_ids"])
        more = {}
        if wanted := body.get("token_ids_logprob"):
            scores = logits.log_softmax(-1)[0]
            more["output_token_ids_logprobs"] = [[(float(scores[each]), each, None) for each in wanted]]
        return {
            "text": "",
            "output_ids": ids[start:],
            "prompt_token_ids": body["input_ids"],
            "meta_info": {
                "id": body["rid"],
                "finish_reason": reason,
                "prompt_tokens": start,
                "completion_tokens": len(logprobs),
                "weight_version": self.version,
                "output_token_logprobs": logprobs,
                **more,
            },
        }
