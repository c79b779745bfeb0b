"""The tensors of the two reward models: requests -> clips, verdicts -> outputs. Pure; knows no HTTP.

One model takes speech codes, as the CosyVoice 2 recipe's server does, the other waveforms. Q codebooks make a frame.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import numpy as np

from elocution.config.tree import RewardServerConfig
from elocution.errors import ProtocolError
from elocution.kserve import InferRequest, Tensor, text_tensor, texts_of
from elocution.serve.http import RequestError
from elocution.serve.scoring import Clip, Status, Verdict
from elocution.text.normalize import normalize
from elocution.types import Audio

__all__ = [
    "DEFAULT_OUTPUTS",
    "DEFAULT_SAMPLE_RATE",
    "OUTPUTS",
    "CodeModel",
    "RewardModel",
    "WaveModel",
    "describe_model",
    "output_tensors",
    "requested_outputs",
]

DEFAULT_SAMPLE_RATE = 16_000
_SAMPLE_RATES = (4_000, 384_000)
# Full scale is 1; a decoder may overshoot, but samples beyond this are on another scale, such as that of int16.
_LARGEST_SAMPLE = 4.0


@dataclass(frozen=True)
class _Output:
    """An output [B, 1]: its datatype, and its value for one verdict."""

    datatype: str
    value: Callable[[Verdict], Any]


def _value(verdict: Verdict) -> float:
    return float("nan") if verdict.score.value is None else verdict.score.value


OUTPUTS: Mapping[str, _Output] = {
    # The two of the CosyVoice 2 recipe. Its client reads the first output by position.
    "REWARDS": _Output("FP32", _value),
    "TRANSCRIPTS": _Output("BYTES", lambda verdict: verdict.score.transcript or ""),
    "VALUES": _Output("FP64", _value),
    "STATUS": _Output("BYTES", lambda verdict: str(verdict.status)),
    "ERROR": _Output("BYTES", lambda verdict: verdict.reason),
    "PARTS": _Output("BYTES", lambda verdict: json.dumps(dict(verdict.score.parts))),
    "MEASURES": _Output("BYTES", lambda verdict: json.dumps(dict(verdict.score.raw))),
}
DEFAULT_OUTPUTS = ("REWARDS", "TRANSCRIPTS")
"""What a request that names no output gets."""


@dataclass(frozen=True)
class CodeModel:
    """Takes speech codes. `TOKENS` INT32 [B, F], or [B, F, Q] of a codec with several codebooks."""

    name: str
    languages: tuple[str, ...]
    limits: RewardServerConfig
    frame_rate: float
    num_codebooks: int
    codebook_size: int

    def inputs(self) -> dict[str, tuple[str, list[int]]]:
        """Datatype and shape of every input, -1 for what is free."""
        frames = [-1, -1] if self.num_codebooks == 1 else [-1, -1, self.num_codebooks]
        return {"TOKENS": ("INT32", frames), "TOKEN_LENS": ("INT32", [-1, 1]), **_TEXT_INPUTS, **_PROMPT_INPUTS}

    def read(self, request: InferRequest) -> list[Clip]:
        """The clips of `request`; one of length 0 is a completion without speech, not an error.

        Raises: RequestError naming the tensor and the row, what was expected and what came.
        """
        _check_inputs(request, self.inputs(), optional=("LANGUAGE", *_PROMPT_INPUTS), model=self.name)
        _check_batch(request, self.inputs(), self.limits.max_batch_size)
        tokens = request.inputs["TOKENS"].values.astype(np.int64)
        lengths = _lengths(request, "TOKEN_LENS", tokens.shape[1])
        wanted = _wanted(request, self.limits)
        clips = []
        for row, (text, language) in enumerate(_texts(request, self.languages, self.limits.max_text_chars)):
            codes = tokens[row, : lengths[row]].reshape(lengths[row], self.num_codebooks)
            _check_duration(row, f"{len(codes)} codes", len(codes) / self.frame_rate, self.limits.max_clip_s)
            if len(codes) and (codes.min() < 0 or codes.max() >= self.codebook_size):
                raise RequestError(
                    "code_out_of_range",
                    f"TOKENS row {row} spans {codes.min()} to {codes.max()}, the codebook has 0 to "
                    f"{self.codebook_size - 1}; send codec codes, not vocabulary ids or stop ids",
                )
            clips.append(Clip(text, language, codes, len(codes) / self.frame_rate, *wanted[row]))
        return clips


@dataclass(frozen=True)
class WaveModel:
    """Takes waveforms. `WAV` FP32 [B, S], full scale 1."""

    name: str
    languages: tuple[str, ...]
    limits: RewardServerConfig

    def inputs(self) -> dict[str, tuple[str, list[int]]]:
        """Datatype and shape of every input, -1 for what is free."""
        return {
            "WAV": ("FP32", [-1, -1]),
            "WAV_LENS": ("INT32", [-1, 1]),
            "SAMPLE_RATE": ("INT32", [-1, 1]),
            **_TEXT_INPUTS,
            **_PROMPT_INPUTS,
        }

    def read(self, request: InferRequest) -> list[Clip]:
        """The clips of `request`; one of length 0 is a completion without speech, not an error.

        Raises: RequestError naming the tensor and the row, what was expected and what came.
        """
        _check_inputs(request, self.inputs(), optional=("LANGUAGE", "SAMPLE_RATE", *_PROMPT_INPUTS), model=self.name)
        _check_batch(request, self.inputs(), self.limits.max_batch_size)
        wanted = _wanted(request, self.limits)
        clips = []
        for row, (text, language) in enumerate(_texts(request, self.languages, self.limits.max_text_chars)):
            sound = _sound(request, "WAV", row, _sample_rate(request, "SAMPLE_RATE", row), self.limits)
            clips.append(Clip(text, language, sound, sound.duration_s, *wanted[row]))
        return clips


RewardModel = CodeModel | WaveModel

_TEXT_INPUTS = {"GT_TEXT": ("BYTES", [-1, 1]), "LANGUAGE": ("BYTES", [-1, 1])}
# What the clip should sound like, for measures that compare; all of it may be left out.
_PROMPT_INPUTS = {
    "PROMPT_WAV": ("FP32", [-1, -1]),
    "PROMPT_WAV_LENS": ("INT32", [-1, 1]),
    "PROMPT_SAMPLE_RATE": ("INT32", [-1, 1]),
    "PROMPT_TEXT": ("BYTES", [-1, 1]),
    "DESCRIPTION": ("BYTES", [-1, 1]),
    "EMOTION": ("BYTES", [-1, 1]),
}


def describe_model(model: RewardModel, *, version: str, reward_version: str) -> dict[str, Any]:
    """KServe's metadata of `model`. LANGUAGE, SAMPLE_RATE, DESCRIPTION, EMOTION and what begins with PROMPT may be left out."""
    return {
        "name": model.name,
        "versions": [version],
        "platform": "elocution",
        "inputs": [
            {"name": name, "datatype": datatype, "shape": shape} for name, (datatype, shape) in model.inputs().items()
        ],
        "outputs": [{"name": name, "datatype": output.datatype, "shape": [-1, 1]} for name, output in OUTPUTS.items()],
        "parameters": {"reward_version": reward_version, "max_batch_size": model.limits.max_batch_size},
    }


def requested_outputs(request: InferRequest) -> tuple[str, ...]:
    """The outputs to answer with, in the order of the request.

    Raises: RequestError if one is asked for that does not exist.
    """
    unknown = [name for name in request.outputs if name not in OUTPUTS]
    if unknown:
        raise RequestError("unknown_output", f"there is no output {unknown[0]!r:.60}; there are {', '.join(OUTPUTS)}")
    return request.outputs or DEFAULT_OUTPUTS


def output_tensors(verdicts: Sequence[Verdict], names: Sequence[str]) -> list[Tensor]:
    """The outputs `names` of one request. Where a clip has no score, REWARDS and VALUES are NaN.

    Raises: RequestError (503) if there is such a clip and `STATUS` is not among `names`: who does not ask for it could
    not tell the lack of a score from a score.
    """
    unscored = [index for index, verdict in enumerate(verdicts) if verdict.status is Status.UNSCORED]
    if unscored and "STATUS" not in names:
        raise RequestError(
            "unscored",
            f"{len(unscored)} of {len(verdicts)} clips could not be scored; row {unscored[0]}: "
            f"{verdicts[unscored[0]].reason}. Ask for the output STATUS to get the others",
            HTTPStatus.SERVICE_UNAVAILABLE,
        )
    return [_output_tensor(name, OUTPUTS[name], verdicts) for name in names]


def _output_tensor(name: str, output: _Output, verdicts: Sequence[Verdict]) -> Tensor:
    values = [output.value(verdict) for verdict in verdicts]
    if output.datatype == "BYTES":
        return text_tensor(name, values)
    kind = np.float32 if output.datatype == "FP32" else np.float64
    return Tensor(name, output.datatype, np.array(values, dtype=kind)[:, None])


def _check_inputs(
    request: InferRequest, expected: Mapping[str, tuple[str, list[int]]], *, optional: Sequence[str], model: str
) -> None:
    for name in request.inputs:
        if name not in expected:
            raise RequestError(
                "unknown_input", f"the model {model} has no input {name!r:.60}; it takes {', '.join(expected)}"
            )
    for name, (datatype, shape) in expected.items():
        if name not in request.inputs:
            if name in optional:
                continue
            raise RequestError("missing_input", f"the input {name} is missing; the model {model} needs it")
        tensor = request.inputs[name]
        if tensor.datatype != datatype:
            raise RequestError("wrong_datatype", f"{name} has datatype {tensor.datatype}, expected {datatype}")
        found = tensor.values.shape
        if len(found) != len(shape) or any(want not in (-1, size) for want, size in zip(shape, found, strict=True)):
            raise RequestError("wrong_shape", f"{name} has shape {list(found)}, expected {shape}")


def _check_batch(request: InferRequest, expected: Mapping[str, Any], largest: int) -> None:
    sizes = {name: len(request.inputs[name].values) for name in expected if name in request.inputs}
    if len(set(sizes.values())) > 1:
        raise RequestError("wrong_shape", f"the inputs disagree on the number of clips: {sizes}")
    size = next(iter(sizes.values()))
    if size == 0:
        raise RequestError("empty_batch", "the request holds no clip")
    if size > largest:
        raise RequestError("batch_too_large", f"the request holds {size} clips, at most {largest} are taken at once")


def _lengths(request: InferRequest, name: str, longest: int) -> list[int]:
    lengths: list[int] = request.inputs[name].values[:, 0].tolist()
    for row, length in enumerate(lengths):
        if not 0 <= length <= longest:
            raise RequestError("wrong_length", f"{name} row {row} is {length}, the tensor holds {longest} for each row")
    return lengths


def _check_duration(row: int, amount: str, duration_s: float, longest_s: float) -> None:
    if duration_s > longest_s:
        raise RequestError("clip_too_long", f"row {row} has {amount}, {duration_s:.2f} s; the limit is {longest_s:g} s")


def _texts(request: InferRequest, languages: Sequence[str], longest: int) -> list[tuple[str, str]]:
    """Text and language of each row; the first of `languages` where the request names none."""
    try:
        texts = texts_of(request.inputs["GT_TEXT"])
        spoken = texts_of(request.inputs["LANGUAGE"]) if "LANGUAGE" in request.inputs else [languages[0]] * len(texts)
    except RequestError:
        raise
    except ProtocolError as error:
        raise RequestError("not_utf8", str(error)) from error
    for row, (text, language) in enumerate(zip(texts, spoken, strict=True)):
        if language not in languages:
            raise RequestError(
                "unknown_language", f"LANGUAGE row {row} is {language!r:.40}; this server knows {', '.join(languages)}"
            )
        if len(text) > longest:
            raise RequestError("text_too_long", f"GT_TEXT row {row} has {len(text)} characters, at most {longest}")
        if not normalize(text, language):
            raise RequestError("empty_text", f"GT_TEXT row {row} holds no word: {text!r:.60}")
    return list(zip(texts, spoken, strict=True))


def _sound(request: InferRequest, name: str, row: int, rate: int, limits: RewardServerConfig) -> Audio:
    """What row `row` of the waveforms `name` holds."""
    waves = request.inputs[name].values
    length = _lengths(request, f"{name}_LENS", waves.shape[1])[row]
    samples = np.ascontiguousarray(waves[row, :length], dtype=np.float32)
    _check_duration(row, f"{len(samples)} samples of {name}", len(samples) / rate, limits.max_clip_s)
    if not np.isfinite(samples).all():
        raise RequestError("sample_not_finite", f"{name} row {row} holds samples that are not finite")
    peak = float(np.abs(samples).max(initial=0.0))
    if peak > _LARGEST_SAMPLE:
        raise RequestError("sample_out_of_range", f"{name} row {row} reaches {peak:g}; full scale is 1")
    return Audio(samples, rate)


def _voice(request: InferRequest, row: int, limits: RewardServerConfig) -> Audio | None:
    """The recording of the voice that row `row` should have; None if the request has none for it."""
    if "PROMPT_WAV" not in request.inputs:
        return None
    if "PROMPT_WAV_LENS" not in request.inputs:
        raise RequestError("missing_input", "the input PROMPT_WAV_LENS is missing; PROMPT_WAV needs it")
    sound = _sound(request, "PROMPT_WAV", row, _sample_rate(request, "PROMPT_SAMPLE_RATE", row), limits)
    return sound if len(sound.samples) else None


def _wanted(request: InferRequest, limits: RewardServerConfig) -> list[tuple[Audio | None, str, str, str]]:
    """Voice, its words, description and emotion that each row should have, as far as the request says."""
    names = ("PROMPT_TEXT", "DESCRIPTION", "EMOTION")
    columns = [_optional_texts(request, name, limits) for name in names]
    return [
        (_voice(request, row, limits), words, description, emotion)
        for row, (words, description, emotion) in enumerate(zip(*columns, strict=True))
    ]


def _optional_texts(request: InferRequest, name: str, limits: RewardServerConfig) -> list[str]:
    """The texts of an input that may be left out, and is then empty in each row."""
    if name not in request.inputs:
        return [""] * len(request.inputs["GT_TEXT"].values)
    try:
        found = texts_of(request.inputs[name])
    except ProtocolError as error:
        raise RequestError("not_utf8", str(error)) from error
    for row, text in enumerate(found):
        if len(text) > limits.max_text_chars:
            raise RequestError(
                "text_too_long", f"{name} row {row} has {len(text)} characters, at most {limits.max_text_chars}"
            )
    return found


def _sample_rate(request: InferRequest, name: str, row: int) -> int:
    if name not in request.inputs:
        return DEFAULT_SAMPLE_RATE
    rate = int(request.inputs[name].values[row, 0])
    low, high = _SAMPLE_RATES
    if not low <= rate <= high:
        raise RequestError("wrong_sample_rate", f"{name} row {row} is {rate} Hz, expected {low} to {high}")
    return rate
