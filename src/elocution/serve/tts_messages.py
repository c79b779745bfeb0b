"""The TTS server's messages: bodies -> checked jobs, results -> SGLang's answers. Pure; knows no HTTP.

What would draw from another distribution than the policy's, over its legal ids at one temperature, is refused.
"""

import base64
import json
import secrets
import uuid
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from elocution.errors import ConfigError
from elocution.policies.base import Policy
from elocution.rollout.sglang_legal import legal_ranges, processor_string
from elocution.rollout.sglang_protocol import (
    FinishedBecause,
    GenerateRequest,
    GenerateResponse,
    MetaInfo,
    SamplingParams,
    SglangMessage,
)
from elocution.rollout.sglang_settings import refuse_sampling
from elocution.rollout.speak import token_budget
from elocution.serve.http import RequestError
from elocution.serve.tts_engine import Drawn, Job
from elocution.types import Completion, FinishReason, Utterance

__all__ = ["GenerateJob", "Limits", "SpeechRequest", "generate_answers", "read_generate", "read_message", "read_speech"]

_Message = TypeVar("_Message", bound=BaseModel)


@dataclass(frozen=True)
class Limits:
    """What one request may ask for."""

    max_n: int = 64
    max_text_chars: int = 2000
    max_wanted_ids: int = 1024
    max_codes_per_char: float = 4.0
    min_codes: int = 40


@dataclass(frozen=True)
class GenerateJob:
    """A `/generate` request and what the engine has to do for it: draw, score what is given, or both.

    Shapes: `prompt_ids` [L]. `wants_audio` asks for a WAV file in the text of each answer.
    """

    request: GenerateRequest
    prompt_ids: NDArray[np.int64]
    draw: Job | None
    score: Job | None
    wants_audio: bool


class SpeechRequest(BaseModel):
    """Body of OpenAI's `POST /v1/audio/speech`; `language`, `seed` and `temperature` are our own."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    input: str = Field(min_length=1)
    model: str | None = None
    voice: str = "default"
    response_format: str = "wav"
    speed: float = 1.0
    language: str = "en"
    seed: int | None = Field(default=None, ge=0, lt=2**63)
    temperature: float = Field(default=0.3, gt=0, le=10)


def read_message(body: bytes, kind: type[_Message]) -> _Message:
    """The message in `body`. Raises: RequestError if it is none."""
    try:
        return kind.model_validate(_object(body or b"{}"))
    except ValidationError as error:
        raise _invalid(error) from error


def read_generate(body: bytes, policy: Policy, limits: Limits, *, num_ids: int) -> GenerateJob:
    """What a body of `POST /generate` asks for; `num_ids` is the number of ids that a prompt may hold.

    Raises: RequestError naming what cannot be done.
    """
    request = _generate_request(body)
    sampling = request.sampling_params
    _check_sampling(request, policy, limits)
    if (request.text is None) == (request.input_ids is None):
        raise RequestError("one_prompt", "give either text or input_ids, one prompt a request")
    if request.text is not None:
        prompt = policy.prompt_ids(_utterance(request.text, "en", policy, limits))
    else:
        prompt = np.array(request.input_ids, dtype=np.int64)
        if not len(prompt) or prompt.min() < 0 or prompt.max() >= num_ids:
            raise RequestError("id_out_of_range", f"input_ids must be at least one id of 0 to {num_ids - 1}")
    _check_length(len(prompt), sampling.max_new_tokens, policy)
    temperature = sampling.temperature
    draw = score = None
    if sampling.max_new_tokens:
        base = secrets.randbits(62) if sampling.sampling_seed is None else sampling.sampling_seed
        seeds = tuple((base, index) for index in range(sampling.n))
        draw = Job(prompt, temperature, sampling.max_new_tokens, seeds, adapter=request.lora_path)
    start = -1 if request.logprob_start_len is None else request.logprob_start_len
    if request.token_ids_logprob:
        wanted = tuple(np.array([[each]]) for each in request.token_ids_logprob)
        _check_legal(np.array(request.token_ids_logprob), policy)
        score = Job(prompt, temperature, given=wanted, adapter=request.lora_path)
    elif request.return_logprob and 0 <= start < len(prompt) - 1:
        given = prompt[start + 1 :]
        _check_legal(given, policy)
        score = Job(prompt[: start + 1], temperature, given=(given[:, None],), adapter=request.lora_path)
    elif draw is None:
        raise RequestError(
            "nothing_to_do", "max_new_tokens = 0 scores given ids: send return_logprob and logprob_start_len as well"
        )
    wants_audio = "audio" in (request.modalities or ())
    return GenerateJob(request, prompt, draw, score, wants_audio)


def read_speech(request: SpeechRequest, policy: Policy, limits: Limits) -> Job:
    """What a speech request asks for. Raises: RequestError naming what cannot be done."""
    if request.response_format != "wav":
        raise RequestError("unsupported_format", f"response_format {request.response_format!r:.40}; only 'wav' is made")
    if request.voice != "default":
        raise RequestError("unknown_voice", f"there is no voice {request.voice!r:.40}; the model has one, 'default'")
    if request.speed != 1.0:
        raise RequestError("unsupported_speed", f"speed {request.speed} is not supported; leave it at 1")
    utterance = _utterance(request.input, request.language, policy, limits)
    prompt, budget = policy.prompt_ids(utterance), _budget(utterance.text, limits)
    _check_length(len(prompt), budget, policy)
    seed = secrets.randbits(62) if request.seed is None else request.seed
    return Job(prompt, request.temperature, budget, ((seed,),))


def generate_answers(
    job: GenerateJob, drawn: Drawn | None, scored: Drawn | None, clips: list[bytes] | None
) -> list[dict[str, Any]]:
    """SGLang's answer for each completion, or one without any if ids were only scored; `clips` are WAV files."""
    result = drawn or scored
    assert result is not None
    answers = []
    completions: tuple[Completion | None, ...] = drawn.completions if drawn else (None,)
    for index, completion in enumerate(completions):
        ids = [] if completion is None else completion.ids[:, 0].tolist()
        suffix = f"_{index}" if len(completions) > 1 else ""
        info = MetaInfo(
            id=job.request.rid + suffix,
            finish_reason=_finish(completion),
            prompt_tokens=len(job.prompt_ids),
            completion_tokens=len(ids),
            weight_version=result.weight_version,
            **_logprobs(job, completion, scored),
        )
        answer = GenerateResponse(
            text=base64.b64encode(clips[index]).decode("ascii") if clips else "",
            output_ids=ids,
            meta_info=info,
            prompt_token_ids=job.prompt_ids.tolist() if job.request.return_prompt_token_ids else None,
        )
        answers.append(answer.to_wire())
    return answers


def _logprobs(job: GenerateJob, completion: Completion | None, scored: Drawn | None) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if job.request.return_logprob:
        ids = [] if completion is None else completion.ids[:, 0].tolist()
        values = [] if completion is None else completion.rollout_logprobs[:, 0].tolist()
        found["output_token_logprobs"] = [(value, each, None) for value, each in zip(values, ids, strict=True)]
    if scored is None or job.score is None:
        return found
    if job.request.token_ids_logprob:
        entries = zip(scored.scores, job.request.token_ids_logprob, strict=True)
        return found | {"output_token_ids_logprobs": [[(float(score[0, 0]), each, None) for score, each in entries]]}
    given, start = job.score.given[0][:, 0].tolist(), len(job.score.prompt_ids) - 1
    values = scored.scores[0][:, 0].tolist()
    first = (None, int(job.prompt_ids[start]), None)
    return found | {
        "input_token_logprobs": [first, *((value, each, None) for value, each in zip(values, given, strict=True))]
    }


def _finish(completion: Completion | None) -> FinishedBecause:
    if completion is None:
        return FinishedBecause(type="length", length=0)
    if completion.finish_reason is FinishReason.STOP:
        return FinishedBecause(type="stop", matched=int(completion.ids[-1, 0]))
    return FinishedBecause(type="length", length=len(completion.ids))


def _generate_request(body: bytes) -> GenerateRequest:
    """The message, with what SGLang lets a client leave out."""
    values = {key: value for key, value in _object(body).items() if value is not None}
    sampling = values.get("sampling_params", {})
    if not isinstance(sampling, dict):
        raise RequestError("malformed_request", "sampling_params must be one object; send one prompt a request")
    _check_known(values, GenerateRequest, "the request")
    _check_known(sampling, SamplingParams, "sampling_params")
    if isinstance(values.get("audio_data"), str):
        values["audio_data"] = [values["audio_data"]]
    values["sampling_params"] = {"max_new_tokens": 128} | {k: v for k, v in sampling.items() if v is not None}
    try:
        return GenerateRequest.model_validate({"rid": uuid.uuid4().hex} | values)
    except ValidationError as error:
        raise _invalid(error) from error


def _check_sampling(request: GenerateRequest, policy: Policy, limits: Limits) -> None:
    sampling = request.sampling_params
    neutral = sampling.model_dump(
        exclude={"max_new_tokens", "temperature", "n", "stop_token_ids", "sampling_seed", "custom_params"}
    )
    try:
        refuse_sampling(neutral)
    except ConfigError as error:
        raise RequestError("unsupported_sampling", str(error)) from error
    if not 0 < sampling.temperature <= 10:
        raise RequestError(
            "unsupported_sampling", f"temperature must be above 0 and at most 10, got {sampling.temperature}"
        )
    if not 1 <= sampling.n <= limits.max_n:
        raise RequestError("too_many", f"n must be 1 to {limits.max_n}, got {sampling.n}")
    if sampling.max_new_tokens < 0:
        raise RequestError("malformed_request", f"max_new_tokens must be at least 0, got {sampling.max_new_tokens}")
    if sampling.sampling_seed is not None and sampling.sampling_seed < 0:
        raise RequestError("malformed_request", f"sampling_seed must be at least 0, got {sampling.sampling_seed}")
    if sampling.stop_token_ids is not None and set(sampling.stop_token_ids) != policy.stop_ids:
        raise RequestError(
            "unsupported_stop", f"stop_token_ids must be the model's own, {sorted(policy.stop_ids)}, or left out"
        )
    ranges = (sampling.custom_params or {}).get("legal_ranges")
    if ranges is not None and ranges != legal_ranges(policy.legal_ids.tolist()):
        raise RequestError("other_legal_ids", "legal_ranges are not those of the model that is served")
    # Never read: the model's own legal ids are kept to in any case, which is all that this one does.
    if request.custom_logit_processor not in (None, processor_string()):
        raise RequestError("unknown_processor", "only the processor elocution.rollout.sglang_legal is known here")
    if request.stream or request.audio_data:
        raise RequestError("unsupported", "streams and voice references are not supported")
    if request.token_ids_logprob and sampling.max_new_tokens != 1:
        raise RequestError("unsupported", "token_ids_logprob needs max_new_tokens = 1")
    if len(request.token_ids_logprob or ()) > limits.max_wanted_ids:
        raise RequestError("too_many", f"token_ids_logprob may have {limits.max_wanted_ids} ids")


def _check_known(values: dict[str, Any], kind: type[SglangMessage], place: str) -> None:
    unknown = sorted(set(values) - kind.model_fields.keys())
    if unknown:
        raise RequestError(
            "unknown_field", f"{place} has {unknown[0]!r:.60}, which this server does not know; remove it"
        )


def _check_length(prompt: int, budget: int, policy: Policy) -> None:
    if prompt + budget > policy.max_positions:
        raise RequestError(
            "too_long",
            f"a prompt of {prompt} ids and {budget} new ones exceed the model's {policy.max_positions} positions",
        )


def _check_legal(ids: NDArray[np.int64], policy: Policy) -> None:
    wrong = ids[~np.isin(ids, policy.legal_ids.numpy())]
    if len(wrong):
        raise RequestError("illegal_id", f"id {wrong[0]} is none that the model may draw, so it has no log-prob")


def _utterance(text: str, language: str, policy: Policy, limits: Limits) -> Utterance:
    if len(text) > limits.max_text_chars:
        raise RequestError(
            "text_too_long", f"the text has {len(text)} characters, the limit is {limits.max_text_chars}"
        )
    utterance = Utterance("request", text.strip(), language)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise RequestError("not_utf8", "the text is not valid UTF-8") from error
    if not any(character.isalnum() for character in text):
        raise RequestError("empty_text", "the text has nothing to speak")
    if reason := policy.check_text(utterance):
        raise RequestError("unspeakable_text", reason)
    return utterance


def _budget(text: str, limits: Limits) -> int:
    return token_budget(text, max_codes_per_char=limits.max_codes_per_char, min_codes=limits.min_codes)


def _object(body: bytes) -> dict[str, Any]:
    try:
        values = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RequestError("malformed_request", f"the body is no JSON: {error}") from error
    if not isinstance(values, dict):
        raise RequestError("malformed_request", f"the body must be a JSON object, got {type(values).__name__}")
    return values


def _invalid(error: ValidationError) -> RequestError:
    first = error.errors()[0]
    place = ".".join(map(str, first["loc"]))
    return RequestError("invalid_field", f"{place}: {first['msg']}, got {first['input']!r:.80}")
