"""The reward server's HTTP layer: KServe v2 routes, bodies read within limits, every error a named answer."""

import gzip
import time
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from elocution import __version__
from elocution.errors import ProtocolError
from elocution.kserve import JSON_LENGTH_HEADER, decode_request, encode_response
from elocution.serve.batching import Busy
from elocution.serve.http import RequestError, answer_errors, check_token, read_body, too_large
from elocution.serve.metrics import RewardMetrics
from elocution.serve.reward_model import (
    RewardModel,
    describe_model,
    output_tensors,
    requested_outputs,
)
from elocution.serve.scoring import ScoringQueue

__all__ = ["MODEL_VERSION", "RewardService", "build_app"]

MODEL_VERSION = "1"
_MAX_BODY = "reward_server.max_body_mib"
_SMALLEST_COMPRESSED = 1024  # bytes of an answer
_WINDOW_BITS = {"gzip": zlib.MAX_WBITS | 16, "deflate": zlib.MAX_WBITS}


@dataclass(frozen=True)
class RewardService:
    """What the routes need. `token` is None where none is asked for; `max_body` is in bytes."""

    models: Mapping[str, RewardModel]
    queue: ScoringQueue
    metrics: RewardMetrics
    reward_version: str
    token: str | None
    max_body: int
    serves_metrics: bool


def build_app(service: RewardService) -> FastAPI:
    """The routes. Health and server metadata are open; all else needs the token where there is one."""
    app = FastAPI(title="elocution rewards", version=__version__, docs_url=None, redoc_url=None, openapi_url=None)
    answer_errors(app)

    @app.get("/v2")
    async def server_metadata() -> dict[str, Any]:
        return {"name": "elocution", "version": __version__, "extensions": ["binary_tensor_data"]}

    @app.get("/v2/health/live")
    @app.get("/v2/health/ready")
    async def health() -> Response:
        return Response()

    @app.get("/v2/models/{name}/ready")
    @app.get("/v2/models/{name}/versions/{version}/ready")
    async def model_ready(request: Request, name: str, version: str = MODEL_VERSION) -> Response:
        check_token(request, service.token)
        _find(service, name, version)
        return Response()

    @app.get("/v2/models/{name}")
    @app.get("/v2/models/{name}/versions/{version}")
    async def model_metadata(request: Request, name: str, version: str = MODEL_VERSION) -> dict[str, Any]:
        check_token(request, service.token)
        model = _find(service, name, version)
        return describe_model(model, version=MODEL_VERSION, reward_version=service.reward_version)

    @app.post("/v2/models/{name}/infer")
    @app.post("/v2/models/{name}/versions/{version}/infer")
    async def infer(request: Request, name: str, version: str = MODEL_VERSION) -> Response:
        label = name if name in service.models else "unknown"
        started = time.perf_counter()
        status = int(HTTPStatus.INTERNAL_SERVER_ERROR)
        try:
            response = await _infer(service, request, name, version)
            status = response.status_code
            return response
        except RequestError as error:
            status = int(error.status)
            raise
        finally:
            service.metrics.requests.labels(model=label, code=str(status)).inc()
            service.metrics.request_seconds.observe(time.perf_counter() - started)

    if service.serves_metrics:

        @app.get("/metrics")
        async def metrics(request: Request) -> Response:
            check_token(request, service.token)
            return Response(generate_latest(service.metrics.registry), media_type=CONTENT_TYPE_LATEST)

    return app


async def _infer(service: RewardService, request: Request, name: str, version: str) -> Response:
    check_token(request, service.token)
    model = _find(service, name, version)
    body = _decompress(
        await read_body(request, service.max_body, _MAX_BODY),
        request.headers.get("content-encoding", ""),
        service.max_body,
    )
    try:
        message = decode_request(body, _json_length(request))
    except ProtocolError as error:
        raise RequestError("malformed_request", str(error)) from error
    names = requested_outputs(message)
    clips = model.read(message)
    try:
        verdicts = await service.queue.score(clips)
    except Busy as error:
        raise RequestError("busy", f"{error}; try again later", HTTPStatus.SERVICE_UNAVAILABLE) from error
    tensors = output_tensors(verdicts, names)
    answer = encode_response(
        tensors,
        model_name=name,
        model_version=MODEL_VERSION,
        request_id=message.id,
        binary=message.binary if message.outputs else (names if message.binary_default else ()),
    )
    content, headers = _compress(answer.body, request.headers.get("accept-encoding", ""))
    return Response(content, headers=answer.headers | headers)


def _find(service: RewardService, name: str, version: str) -> RewardModel:
    if name not in service.models or version != MODEL_VERSION:
        known = ", ".join(f"{known} version {MODEL_VERSION}" for known in service.models)
        raise RequestError(
            "unknown_model",
            f"there is no model {name!r:.80} version {version!r:.20}; there are {known}",
            HTTPStatus.NOT_FOUND,
        )
    return service.models[name]


def _decompress(body: bytes, encoding: str, largest: int) -> bytes:
    if encoding.lower() in ("", "identity"):
        return body
    if encoding.lower() not in _WINDOW_BITS:
        raise RequestError(
            "unknown_encoding",
            f"Content-Encoding {encoding!r:.40} is not supported; send gzip, deflate or none",
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
        )
    stream = zlib.decompressobj(_WINDOW_BITS[encoding.lower()])
    try:
        plain = stream.decompress(body, largest + 1)
    except zlib.error as error:
        raise RequestError("malformed_encoding", f"the body is no {encoding} stream: {error}") from error
    if len(plain) > largest:
        raise too_large("more bytes once decompressed", largest, _MAX_BODY)
    if not stream.eof or stream.unused_data:
        raise RequestError("malformed_encoding", f"the {encoding} stream is cut short or has something behind it")
    return plain


def _json_length(request: Request) -> int | None:
    value = request.headers.get(JSON_LENGTH_HEADER)
    if value is None:
        return None
    if not value.isdecimal() or len(value) > 12:
        raise RequestError("malformed_request", f"{JSON_LENGTH_HEADER} must be a number of bytes, got {value!r:.40}")
    return int(value)


def _compress(body: bytes, accepted: str) -> tuple[bytes, dict[str, str]]:
    if len(body) < _SMALLEST_COMPRESSED:
        return body, {}
    names = [
        part.split(";")[0].strip().lower() for part in accepted.split(",") if "q=0" not in part.replace("q=0.", "")
    ]
    if "gzip" in names:
        return gzip.compress(body, compresslevel=1), {"Content-Encoding": "gzip"}
    if "deflate" in names:
        return zlib.compress(body, 1), {"Content-Encoding": "deflate"}
    return body, {}
