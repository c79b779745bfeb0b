"""The TTS server's messages: bodies -> checked jobs, results -> SGLang's answers. Knows no HTTP.

What would draw from another distribution than the policy's, over its legal ids at one temperature, is refused.
"""

import base64
import json
import secrets
import uuid
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from elocution.errors import ConfigError
from elocution.policies.base import ForcesCells, Policy
from elocution.policies.prompt_parts import reads_manner
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
from elocution.serve.tts_references import References
from elocution.serve.tts_tags import read_tags
from elocution.text.language import check_language
from elocution.types import Completion, FinishReason, Utterance

__all__ = ["GenerateJob", "Limits", "SpeechRequest", "generate_answers", "read_generate", "read_message", "read_speech"]

_Message = TypeVar("_Message", bound=BaseModel)
# Stands for 0: no id but the most probable has any probability. Log-probs are 0 then.
_GREEDY = 1e-6


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

    Shapes: `prompt_ids` [L] or [L, C]. `wants_audio` asks for a WAV file in the text of each answer, in the utterance's voice.
    """

    request: GenerateRequest
    utterance: Utterance
    prompt_ids: NDArray[np.int64]
    draw: Job | None
    score: Job | None
    wants_audio: bool


class SpeechRequest(BaseModel):
    """Body of OpenAI's `POST /v1/audio/speech`; what comes after `speed` is our own, as in `elocution generate`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    input: str = Field(min_length=1)
    model: str | None = None
    voice: str = "default"
    response_format: str = "wav"
    instructions: str = ""
    speed: float = 1.0
    language: str = "en"
    ref_audio: str | None = None
    ref_text: str = ""
    seed: int | None = Field(default=None, ge=0, lt=2**63)
    temperature: float = Field(default=0.3, gt=0, le=10)


def read_message(body: bytes, kind: type[_Message]) -> _Message:
    """The message in `body`. Raises: RequestError if it is none."""
    try:
        return kind.model_validate(_object(body or b"{}"))
    except ValidationError as error:
        raise _invalid(error) from error


def read_generate(body: bytes, policy: Policy, limits: Limits, references: References) -> GenerateJob:
    """What a body of `POST /generate` asks for.

    `ref_text`, the words of the recording in `audio_data`, is our own field. Policies of several channels get a row more for
    each of them to end a clip in, as in SGLang's fork.

    Raises: RequestError naming what cannot be done.
    """
    values = _object(body)
    ref_text = values.pop("ref_text", None) or ""
    if not isinstance(ref_text, str):
        raise RequestError("invalid_field", f"ref_text must be a text, got {ref_text!r:.80}")
    request = _generate_request(values)
    sampling = request.sampling_params
    _check_sampling(request, policy, limits)
    if (request.text is None) == (request.input_ids is None):
        raise RequestError("one_prompt", "give either text or input_ids, one prompt a request")
    utterance = Utterance("request", "")
    if request.text is not None:
        tagged = read_tags(request.text)
        utterance = _utterance(tagged.text, "en", policy, limits, tagged.instruction)
        utterance = _in_voice(utterance, _one(request.audio_data), ref_text, policy, references)
        prompt = policy.prompt_ids(utterance)
    elif request.audio_data:
        raise RequestError("one_prompt", "audio_data gives a voice to a text; input_ids already are the whole prompt")
    else:
        prompt = _prompt(request, policy)
    channels = policy.num_channels
    budget = sampling.max_new_tokens + (channels if channels > 1 else 0)
    _check_length(len(prompt), budget, policy)
    temperature = sampling.temperature or _GREEDY
    draw = score = None
    if sampling.max_new_tokens:
        base = secrets.randbits(62) if sampling.sampling_seed is None else sampling.sampling_seed
        seeds = tuple((base, index) for index in range(sampling.n))
        draw = Job(prompt, temperature, budget, seeds, adapter=request.lora_path)
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
    return GenerateJob(request, utterance, prompt, draw, score, wants_audio)


def read_speech(
    request: SpeechRequest, policy: Policy, limits: Limits, references: References
) -> tuple[Utterance, Job]:
    """What a speech request asks for. Raises: RequestError naming what cannot be done."""
    if request.response_format != "wav":
        raise RequestError("unsupported_format", f"response_format {request.response_format!r:.40}; only 'wav' is made")
    if request.voice != "default":
        raise RequestError("unknown_voice", f"there is no voice {request.voice!r:.40}; the model has one, 'default'")
    if request.speed != 1.0:
        raise RequestError("unsupported_speed", f"speed {request.speed} is not supported; leave it at 1")
    utterance = _utterance(request.input, request.language, policy, limits, request.instructions)
    utterance = _in_voice(utterance, request.ref_audio, request.ref_text, policy, references)
    prompt, budget = policy.prompt_ids(utterance), _budget(utterance.text, policy, limits)
    _check_length(len(prompt), budget, policy)
    seed = secrets.randbits(62) if request.seed is None else request.seed
    return utterance, Job(prompt, request.temperature, budget, ((seed,),))


def generate_answers(
    job: GenerateJob, drawn: Drawn | None, scored: Drawn | None, clips: list[bytes] | None
) -> list[dict[str, Any]]:
    """SGLang's answer for each completion, or one without any if ids were only scored; `clips` are WAV files."""
    result = drawn or scored
    assert result is not None
    answers = []
    completions: tuple[Completion | None, ...] = drawn.completions if drawn else (None,)
    for index, completion in enumerate(completions):
        ids = [] if completion is None else _plain(completion.ids)
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


def _plain(cells: NDArray[Any]) -> list[Any]:
    """Shapes: [T, 1] -> [T]; [T, C] as it is."""
    plain: list[Any] = (cells[:, 0] if cells.shape[1] == 1 else cells).tolist()
    return plain


def _logprobs(job: GenerateJob, completion: Completion | None, scored: Drawn | None) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if job.request.return_row_logprobs and completion is not None:
        found["row_logprobs"] = completion.rollout_logprobs.tolist()
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


def _generate_request(message: dict[str, Any]) -> GenerateRequest:
    """The message, with what SGLang lets a client leave out."""
    values = {key: value for key, value in message.items() if value is not None}
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
    if not 0 <= sampling.temperature <= 10:
        raise RequestError("unsupported_sampling", f"temperature must be 0 to 10, got {sampling.temperature}")
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
    if policy.num_channels > 1 and (
        request.return_logprob or request.token_ids_logprob or request.custom_logit_processor
    ):
        raise RequestError(
            "unsupported",
            "return_logprob, token_ids_logprob and custom_logit_processor are for models of one channel; log-probs of rows "
            "come with return_row_logprobs",
        )
    if request.stream:
        raise RequestError("unsupported", "streams are not supported")
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
    wrong = ids[policy.illegal_cells(ids[:, None])[:, 0]]
    if len(wrong):
        raise RequestError("illegal_id", f"id {wrong[0]} is none that the model may draw, so it has no log-prob")


def _one(audio: tuple[str, ...] | None) -> str | None:
    if audio and len(audio) > 1:
        raise RequestError("too_many", f"audio_data holds {len(audio)} recordings; a text has one voice")
    return audio[0] if audio else None


def _utterance(text: str, language: str, policy: Policy, limits: Limits, instruction: str) -> Utterance:
    if len(text) + len(instruction) > limits.max_text_chars:
        raise RequestError(
            "text_too_long",
            f"text and instruction have {len(text) + len(instruction)} characters, the limit is {limits.max_text_chars}",
        )
    utterance = Utterance("request", text.strip(), language, instruction=instruction.strip())
    try:
        (text + instruction).encode()
    except UnicodeEncodeError as error:
        raise RequestError("not_utf8", "the text is not valid UTF-8") from error
    if not any(character.isalnum() for character in text):
        raise RequestError("empty_text", "the text has nothing to speak")
    try:
        check_language(language)
    except ConfigError as error:
        raise RequestError("unknown_language", str(error)) from error
    if reason := policy.check_text(utterance):
        raise RequestError("unspeakable_text", reason)
    if utterance.instruction and not reads_manner(policy, utterance):
        raise RequestError("no_instructions", "this model takes no instruction: nothing of it reaches the prompt")
    return utterance


def _in_voice(
    utterance: Utterance, source: str | None, words: str, policy: Policy, references: References
) -> Utterance:
    if source is None:
        if words:
            raise RequestError("no_reference", "ref_text are the words of a recording, but there is none")
        return utterance
    if policy.num_channels == 1 and not words.strip():
        # Such models continue the recording: its words stand before the text, its codes before those that are drawn.
        raise RequestError("no_reference_text", "this model needs the words of the recording as well: send ref_text")
    spoken = replace(utterance, voice=references.read(source, words))
    if reason := policy.check_text(spoken):
        raise RequestError("unspeakable_text", reason)
    return spoken


def _budget(text: str, policy: Policy, limits: Limits) -> int:
    budget = token_budget(text, max_codes_per_char=limits.max_codes_per_char, min_codes=limits.min_codes)
    return budget + policy.flush_rows if isinstance(policy, ForcesCells) else budget


def _prompt(request: GenerateRequest, policy: Policy) -> NDArray[np.int64]:
    """Shapes: [L], or [L, C] where prompts fill all channels."""
    sizes = policy.channel_sizes
    has_rows = len(sizes) > 1
    if bool(request.multi_channel) != has_rows:
        raise RequestError(
            "wrong_channels",
            f"the model has {len(sizes)} channels: input_ids must be {'rows, with' if has_rows else 'ids, without'} multi_channel",
        )
    rows = request.input_ids or ()
    widths = {len(row) if isinstance(row, tuple) else 0 for row in rows}
    if widths != {len(sizes) if has_rows else 0}:
        each = f"row of {len(sizes)} ids" if has_rows else "id"
        raise RequestError("wrong_channels", f"input_ids must be at least one {each}, and nothing else")
    prompt = np.array(rows, dtype=np.int64)
    if prompt.min() < 0 or (prompt >= np.array(sizes)).any():
        limits = ", ".join(str(size - 1) for size in sizes)
        raise RequestError("id_out_of_range", f"input_ids must be from 0 to {limits}")
    return prompt


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
