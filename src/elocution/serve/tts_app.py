"""The TTS server's HTTP layer: SGLang's `/generate` and its control routes, and OpenAI's `/v1/audio/speech`."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any

import numpy as np
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from elocution import __version__
from elocution.errors import ElocutionError, EngineError
from elocution.rollout.sglang_protocol import (
    AbortRequest,
    BeginWeightUpdate,
    DestroyWeightsUpdateGroup,
    EndWeightUpdate,
    InitWeightsUpdateGroup,
    LoadLoraAdapter,
    LoraResult,
    ModelInfo,
    PauseGeneration,
    ServerInfo,
    SglangMessage,
    UnloadLoraAdapter,
    UpdateWeightsFromDisk,
    UpdateWeightsFromDistributed,
    UpdateWeightsResult,
    UpdateWeightVersion,
)
from elocution.serve.batching import Batcher, Busy
from elocution.serve.http import RequestError, answer_errors, check_token, read_body
from elocution.serve.tts_engine import Drawn, Job, TtsEngine
from elocution.serve.tts_messages import (
    Limits,
    SpeechRequest,
    generate_answers,
    read_generate,
    read_message,
    read_speech,
)
from elocution.serve.tts_metrics import TtsMetrics
from elocution.serve.tts_references import References
from elocution.serve.tts_voice import Voice
from elocution.serve.tts_weights import WeightUpdates

__all__ = ["TtsService", "build_app"]

logger = logging.getLogger(__name__)


@dataclass
class TtsService:
    """What the routes need. `max_body` is in bytes; `token` is None where none is asked for.

    `may_draw` is not set while generation is paused.
    """

    engine: TtsEngine
    voice: Voice
    batcher: Batcher[Job, Drawn]
    metrics: TtsMetrics
    limits: Limits
    references: References
    token: str | None
    max_body: int
    may_draw: asyncio.Event = field(default_factory=asyncio.Event)
    updates: WeightUpdates = field(init=False)

    def __post_init__(self) -> None:
        self.may_draw.set()
        self.updates = WeightUpdates(self.engine)

    async def run(self, job: Job) -> Drawn:
        """The job's result, once generation is not paused. Raises: RequestError."""
        await self.may_draw.wait()
        try:
            return await self.batcher.submit(job)
        except Busy as error:
            raise RequestError("busy", f"{error}; try again later", HTTPStatus.SERVICE_UNAVAILABLE) from error
        except EngineError as error:
            raise RequestError("generation_failed", str(error), HTTPStatus.INTERNAL_SERVER_ERROR) from error


def build_app(service: TtsService) -> FastAPI:
    """The routes. `/health` is open; all else needs the token where there is one."""
    app = FastAPI(title="elocution tts", version=__version__, docs_url=None, redoc_url=None, openapi_url=None)
    answer_errors(app)

    def route(method: str, path: str, answer: Callable[[TtsService, bytes], Awaitable[Response]]) -> None:
        async def handle(request: Request) -> Response:
            started, status = time.perf_counter(), int(HTTPStatus.INTERNAL_SERVER_ERROR)
            try:
                check_token(request, service.token)
                response = await answer(service, await read_body(request, service.max_body, "of this server"))
                status = response.status_code
                return response
            except RequestError as error:
                status = int(error.status)
                raise
            finally:
                service.metrics.requests.labels(route=path, code=str(status)).inc()
                service.metrics.request_seconds.observe(time.perf_counter() - started)

        app.add_api_route(path, handle, methods=[method], name=f"{method} {path}")

    @app.get("/health")
    async def health() -> Response:
        return Response()

    route("POST", "/generate", _generate)
    route("POST", "/v1/audio/speech", _speak)
    route("GET", "/health_generate", _health_generate)
    route("GET", "/metrics", _metrics)
    for path in ("/model_info", "/get_model_info"):
        route("GET", path, _model_info)
    for method in ("GET", "POST"):
        route(method, "/flush_cache", _flush_cache)
    route("GET", "/server_info", _server_info)
    route("POST", "/update_weights_from_disk", _update_weights)
    route("POST", "/init_weights_update_group", _join_group)
    route("POST", "/destroy_weights_update_group", _leave_group)
    route("POST", "/begin_weight_update", _begin_update)
    route("POST", "/update_weights_from_distributed", _receive_weights)
    route("POST", "/end_weight_update", _end_update)
    route("POST", "/update_weight_version", _update_version)
    route("POST", "/load_lora_adapter", _load_adapter)
    route("POST", "/unload_lora_adapter", _unload_adapter)
    route("POST", "/pause_generation", _pause)
    route("POST", "/continue_generation", _continue)
    route("POST", "/abort_request", _abort)
    return app


async def _generate(service: TtsService, body: bytes) -> Response:
    policy, limits, references = service.engine.policy, service.limits, service.references
    read = partial(read_generate, body, policy, limits, references)
    job = await asyncio.to_thread(read)  # a recording may have to be encoded
    adapter = job.request.lora_path
    if adapter is not None and adapter not in service.engine.adapters:
        raise RequestError("unknown_adapter", f"there is no adapter {adapter!r:.80}; load it first")
    drawn = await service.run(job.draw) if job.draw else None
    scored = await service.run(job.score) if job.score else None
    if drawn and scored and drawn.weight_version != scored.weight_version:
        raise RequestError(
            "weights_changed", "weights were replaced during the request; ask again", HTTPStatus.SERVICE_UNAVAILABLE
        )
    clips = None
    if job.wants_audio and drawn:
        sounds = await asyncio.to_thread(service.voice.sounds, policy, job.utterance, drawn.completions)
        clips = [service.voice.wav(sound) for sound in sounds]
    answers = generate_answers(job, drawn, scored, clips)
    return JSONResponse(answers[0] if job.request.sampling_params.n == 1 else answers)


async def _speak(service: TtsService, body: bytes) -> Response:
    request, policy = read_message(body, SpeechRequest), service.engine.policy
    utterance, job = await asyncio.to_thread(read_speech, request, policy, service.limits, service.references)
    drawn = await service.run(job)
    (sound,) = await asyncio.to_thread(service.voice.sounds, policy, utterance, drawn.completions)
    if sound is None:
        raise RequestError(
            "no_speech", "the model gave no usable speech; try another seed", HTTPStatus.INTERNAL_SERVER_ERROR
        )
    return Response(service.voice.wav(sound), media_type="audio/wav")


async def _health_generate(service: TtsService, body: bytes) -> Response:
    channels = service.engine.policy.num_channels
    first = np.zeros((1, channels) if channels > 1 else 1, np.int64)
    await service.run(Job(first, 1.0, max_new=1, seeds=((0,),)))
    return Response()


async def _metrics(service: TtsService, body: bytes) -> Response:
    return Response(generate_latest(service.metrics.registry), media_type=CONTENT_TYPE_LATEST)


async def _model_info(service: TtsService, body: bytes) -> Response:
    engine = service.engine
    info = ModelInfo(
        model_path=engine.model_path,
        weight_version=engine.weight_version,
        architectures=[type(engine.policy.model).__name__],
    )
    return JSONResponse(info.to_wire())


async def _flush_cache(service: TtsService, body: bytes) -> Response:
    return Response("Cache flushed: nothing of a prompt outlives its batch here.\n")


async def _update_weights(service: TtsService, body: bytes) -> Response:
    message = read_message(body, UpdateWeightsFromDisk)
    return await _change(
        lambda: service.engine.load_weights(Path(message.model_path), message.weight_version),
        _update_result,
        {"num_paused_requests": 0},
    )


async def _server_info(service: TtsService, body: bytes) -> Response:
    return JSONResponse(ServerInfo(tp_size=1).to_wire())


async def _join_group(service: TtsService, body: bytes) -> Response:
    message = read_message(body, InitWeightsUpdateGroup)
    return await _change(lambda: service.updates.join(message), _update_result)


async def _leave_group(service: TtsService, body: bytes) -> Response:
    message = read_message(body, DestroyWeightsUpdateGroup)
    return await _change(lambda: service.updates.leave(message.group_name), _update_result)


async def _begin_update(service: TtsService, body: bytes) -> Response:
    read_message(body, BeginWeightUpdate)
    return await _change(service.updates.begin, _update_result)


async def _receive_weights(service: TtsService, body: bytes) -> Response:
    message = read_message(body, UpdateWeightsFromDistributed)
    return await _change(lambda: service.updates.receive(message), _update_result)


async def _end_update(service: TtsService, body: bytes) -> Response:
    read_message(body, EndWeightUpdate)
    return await _change(service.updates.end, _update_result)


def _update_result(reason: str | None) -> UpdateWeightsResult:
    return UpdateWeightsResult(success=reason is None, message=reason or "done")


async def _update_version(service: TtsService, body: bytes) -> Response:
    message = read_message(body, UpdateWeightVersion)
    service.engine.weight_version = message.new_version
    return JSONResponse(
        UpdateWeightsResult(success=True, message="renamed").to_wire() | {"new_version": message.new_version}
    )


async def _load_adapter(service: TtsService, body: bytes) -> Response:
    message = read_message(body, LoadLoraAdapter)
    return await _change(
        lambda: service.engine.load_adapter(message.lora_name, Path(message.lora_path)),
        lambda reason: _lora_result(service, reason),
    )


async def _unload_adapter(service: TtsService, body: bytes) -> Response:
    message = read_message(body, UnloadLoraAdapter)
    return await _change(
        lambda: service.engine.unload_adapter(message.lora_name), lambda reason: _lora_result(service, reason)
    )


def _lora_result(service: TtsService, reason: str | None) -> LoraResult:
    return LoraResult(success=reason is None, error_message=reason, loaded_adapters=dict(service.engine.adapters))


async def _change(
    act: Callable[[], None], result: Callable[[str | None], SglangMessage], more: dict[str, Any] | None = None
) -> Response:
    """Does `act` in a thread, and answers as SGLang does: 200, or 400 with the reason."""
    reason = None
    try:
        await asyncio.to_thread(act)
    except ElocutionError as error:
        logger.error("%s", error)
        reason = str(error)
    status = HTTPStatus.OK if reason is None else HTTPStatus.BAD_REQUEST
    return JSONResponse(result(reason).to_wire() | (more or {}), status_code=status)


async def _pause(service: TtsService, body: bytes) -> Response:
    read_message(body, PauseGeneration)
    service.may_draw.clear()
    return JSONResponse({"status": "ok", "message": "requests under way end; new ones wait"})


async def _continue(service: TtsService, body: bytes) -> Response:
    service.may_draw.set()
    return JSONResponse({"status": "ok", "message": "generation goes on"})


async def _abort(service: TtsService, body: bytes) -> Response:
    # A batch cannot be left by one of its rows; its client is gone, and nobody reads the answer.
    read_message(body, AbortRequest)
    return Response()
