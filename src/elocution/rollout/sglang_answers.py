"""SGLang's answers -> completions, each checked to be whole, of the right weights, and to the prompt that was asked.

Pure functions; none talks to a server.
"""

import base64
import binascii
import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import soundfile
from numpy.typing import NDArray

from elocution.errors import EngineError, EngineUnavailable
from elocution.rollout.sglang_protocol import GenerateResponse
from elocution.types import Audio, FinishReason

__all__ = [
    "Drawn",
    "check_prompt",
    "check_version",
    "decode_answer_audio",
    "read_finish",
    "read_ids",
    "read_row_logprobs",
    "read_rows",
    "read_wanted",
]


@dataclass(frozen=True)
class Drawn:
    """What an answer holds. Shapes: `ids` [T, C]; `logprobs` [T, C], nats, None if the server gave none."""

    ids: NDArray[np.int64]
    logprobs: NDArray[np.float32] | None
    finish_reason: FinishReason


def check_version(answer: GenerateResponse, version: int) -> None:
    """Raises: EngineUnavailable if an id of the answer was drawn with other weights than those of `version`."""
    info = answer.meta_info
    seen = {info.weight_version, *(span.version for span in info.weight_versions or ())}
    if seen != {str(version)}:
        raise EngineUnavailable(
            f"SGLang drew with the weights {sorted(map(str, seen))} where version {version} was published; "
            "does another program update this server?"
        )


def read_finish(answer: GenerateResponse, max_new: int) -> FinishReason:
    """Whether a stop id or the budget of `max_new` ids ended the answer.

    Raises: EngineError if it was anything else.
    """
    reason = answer.meta_info.finish_reason
    if reason.type == "length":
        if len(answer.output_ids) < max_new:
            raise EngineError(
                f"SGLang ended a completion after {len(answer.output_ids)} of {max_new} ids; its context is too short "
                "for prompt and budget, and it was started with --allow-auto-truncate"
            )
        return FinishReason.LENGTH
    if reason.type == "stop" and isinstance(reason.matched, int):
        return FinishReason.STOP
    # SGLang writes a text here when its logits are not finite.
    raise EngineError(f"SGLang ended a completion for the reason {reason.type!r}, {reason.matched or reason.message!r}")


def check_prompt(
    answer: GenerateResponse, prompt: Sequence[int] | Sequence[Sequence[int]], *, may_be_silent: bool = False
) -> None:
    """`may_be_silent` takes an answer that says how long its prompt was, and not what it was.

    Raises: EngineError if the answer is to another prompt, of ids or of rows.
    """
    found = answer.prompt_token_ids
    is_other = found != prompt and not (found is None and may_be_silent)
    if is_other or answer.meta_info.prompt_tokens != len(prompt):
        raise EngineError(
            f"SGLang answered a prompt of {answer.meta_info.prompt_tokens} ids, asked was one of {len(prompt)} "
            "with other ids: answers are crossed, or the server cuts prompts (--allow-auto-truncate)"
        )


def read_ids(
    answer: GenerateResponse, prompt: Sequence[int], max_new: int
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Drawn ids and their log-probs as the server gives them. Shapes: [T, 1] each; nats.

    Raises: EngineError if the answer is to another prompt, too long, empty, or lacks log-probs.
    """
    ids, info = answer.output_ids, answer.meta_info
    check_prompt(answer, prompt)
    if not ids or len(ids) > max_new:
        raise EngineError(f"SGLang drew {len(ids)} ids, asked were 1 to {max_new}")
    logprobs = info.output_token_logprobs or []
    if [entry[1] for entry in logprobs] != ids:
        raise EngineError(
            f"SGLang gave log-probs of {len(logprobs)} ids for a completion of {len(ids)}, or of other ids than it drew"
        )
    values = [entry[0] for entry in logprobs]
    if any(value is None for value in values):
        raise EngineError("SGLang gave a log-prob that is not finite")
    return np.array(ids, dtype=np.int64)[:, None], np.array(values, dtype=np.float32)[:, None]


def read_wanted(answer: GenerateResponse, wanted: int) -> float:
    """The log-prob of id `wanted` at the one position that was drawn, nats.

    Raises: EngineError if the server gave none, or none that is finite.
    """
    positions = answer.meta_info.output_token_ids_logprobs or [None]
    values = {entry[1]: entry[0] for entry in positions[0] or []}
    value = values.get(wanted)
    if value is None:
        raise EngineError(f"SGLang gave no finite log-prob of id {wanted}; does the server know token_ids_logprob?")
    return value


def read_rows(answer: GenerateResponse, limits: Sequence[int], max_new: int) -> NDArray[np.int64]:
    """Drawn rows, one id for each channel. Shapes: `limits` [C], the number of ids of each channel; returns [T, C].

    Raises: EngineError if a row has another width, an id does not exist, or there are too many rows.
    """
    rows = [row if isinstance(row, list) else [row] for row in answer.output_ids]
    widths = {len(row) for row in rows}
    if widths != {len(limits)}:
        raise EngineError(
            f"SGLang drew rows of {sorted(widths)} ids where the policy has {len(limits)} channels; "
            "was the server started with --delay-pattern?"
        )
    if len(rows) > max_new:
        raise EngineError(f"SGLang drew {len(rows)} rows, asked were at most {max_new}")
    ids = np.array(rows, dtype=np.int64)
    wrong = np.argwhere((ids < 0) | (ids >= np.array(limits)))
    if len(wrong):
        row, channel = wrong[0]
        raise EngineError(
            f"SGLang drew id {ids[row, channel]} in channel {channel}, which has the ids 0 to {limits[channel] - 1}"
        )
    return ids


def read_row_logprobs(answer: GenerateResponse, shape: tuple[int, ...]) -> NDArray[np.float32] | None:
    """Log-probs of the drawn rows, nats; None if the server gave none. Shapes: `shape` is [T, C], and so is the answer.

    Raises: EngineError if they are those of other rows.
    """
    if answer.meta_info.row_logprobs is None:
        return None
    found = np.array(answer.meta_info.row_logprobs, dtype=np.float32)
    if found.shape != shape:
        raise EngineError(f"the server gave log-probs of shape {found.shape} for rows of shape {shape}")
    return found


def decode_answer_audio(text: str) -> Audio | None:
    """The clip that a multi-channel server sends as its text; None if it could not make one.

    Blanks may stand before the base64, and a clip of one sample is how that server reports failure.

    Raises: EngineError if the text is no base64 of a sound file.
    """
    try:
        samples, sample_rate = soundfile.read(
            io.BytesIO(base64.b64decode(text.strip(), validate=True)), dtype="float32", always_2d=True
        )
    except (binascii.Error, soundfile.LibsndfileError) as error:
        raise EngineError(f"SGLang answered {text[:40]!r}…, which is no sound in base64: {error}") from error
    return Audio(samples.mean(axis=1), sample_rate) if len(samples) > 1 else None
