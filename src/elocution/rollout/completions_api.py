"""vLLM's `/v1/completions` as pure functions: requests to JSON bodies, JSON answers to checked completions.

Measured with vllm 0.32.0; see docs/engines.md. Sends nothing.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elocution.errors import EngineError, EngineUnavailable
from elocution.rollout.base import RolloutRequest
from elocution.types import Completion, FinishReason

__all__ = [
    "MAX_SCORED_IDS",
    "Draw",
    "IllegalIds",
    "IncompleteAnswer",
    "Sampling",
    "completion_body",
    "completion_of",
    "plan_draws",
    "sampling_seed",
    "score_body",
    "scores_of",
]

MAX_SCORED_IDS = 128
"""Most distinct ids whose log-probs vLLM gives in one request."""

# A log-prob of minus infinity is written as this number.
_NO_PROBABILITY = -9999.0
# Sums of exponentials round; a log-prob may be above 0 by so much.
_ROUNDING = 1e-3


class IncompleteAnswer(EngineUnavailable):
    """The server gave fewer samples than asked, or cut one short; asking again may help."""


class IllegalIds(EngineError):
    """The server drew ids that the policy must not draw. `count` says how many."""

    def __init__(self, message: str, count: int) -> None:
        super().__init__(message)
        self.count = count


@dataclass(frozen=True)
class Sampling:
    """What the draws of a policy have in common. `legal_ids` and `stop_ids` ascend."""

    temperature: float
    legal_ids: tuple[int, ...]
    stop_ids: tuple[int, ...]

    @cached_property
    def legal(self) -> frozenset[int]:
        """`legal_ids`, to look one up."""
        return frozenset(self.legal_ids)


@dataclass(frozen=True)
class Draw:
    """The completion of seed number `sibling` of request number `request`."""

    request: int
    sibling: int
    prompt_ids: NDArray[np.int64]
    seed: int
    max_new: int


def sampling_seed(seed: Sequence[int]) -> int:
    """A seed for the server: a digest of all numbers but the last, plus the last. At least 0, below 2**63.

    So siblings, whose last numbers follow each other, have seeds that follow each other. Raises: ValueError if the last
    number is negative or above 2**62.
    """
    if not 0 <= seed[-1] <= 2**62:
        raise ValueError(f"the last number of a seed must be in 0 … 2**62, got {seed[-1]}")
    text = ",".join(map(str, seed[:-1]))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big") + seed[-1]


def plan_draws(requests: Sequence[RolloutRequest]) -> list[Draw]:
    """One draw for each completion, those with the largest budget first."""
    draws = [
        Draw(index, sibling, request.prompt_ids, sampling_seed(seed), request.max_new)
        for index, request in enumerate(requests)
        for sibling, seed in enumerate(request.seeds)
    ]
    return sorted(draws, key=lambda draw: -draw.max_new)


def completion_body(draw: Draw, sampling: Sampling, *, model: str, cache_salt: str) -> dict[str, Any]:
    """The body that asks for `draw`; every parameter is explicit, so that no default of the server counts.

    `cache_salt` names the weights: what other weights have cached of a prompt is not used.
    """
    return {
        "model": model,
        "prompt": draw.prompt_ids.tolist(),
        "n": 1,
        "seed": draw.seed,
        "max_tokens": draw.max_new,
        "logprobs": 0,
        "return_token_ids": True,
        **_common(sampling, cache_salt),
    }


def score_body(
    prompt_ids: Sequence[int],
    ids: Sequence[int],
    positions: range,
    sampling: Sampling,
    *,
    model: str,
    cache_salt: str,
) -> dict[str, Any]:
    """The body that asks for the log-probs of `ids` at `positions`, one continuation of one id for each of them.

    The server gives log-probs of chosen ids at a position that it draws; so the ids before it become the prompt.
    """
    return {
        "model": model,
        "prompt": [[*prompt_ids, *ids[:position]] for position in positions],
        "n": 1,
        "max_tokens": 1,
        "logprobs": 0,
        "logprob_token_ids": sorted({ids[position] for position in positions}),
        **_common(sampling, cache_salt),
    }


def _common(sampling: Sampling, cache_salt: str) -> dict[str, Any]:
    return {
        "temperature": sampling.temperature,
        "top_p": 1.0,
        "top_k": 0,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "ignore_eos": True,
        "stop_token_ids": list(sampling.stop_ids),
        "allowed_token_ids": sampling.legal_ids,  # not copied: tens of thousands for each completion of a batch
        "return_tokens_as_token_ids": True,
        "cache_salt": cache_salt,
    }


def completion_of(answer: Any, draw: Draw, sampling: Sampling, *, version: int) -> Completion:
    """The completion in the server's answer to `draw`.

    Raises: IncompleteAnswer if it is missing or was cut short; IllegalIds; EngineError if anything else in the
    answer is not what was asked for.
    """
    (choice,) = _choices(answer, 1)
    prompt_ids = choice.get("prompt_token_ids")
    if prompt_ids is not None and prompt_ids != draw.prompt_ids.tolist():
        raise EngineError(
            f"the server read another prompt than it was sent: {len(prompt_ids)} ids instead of "
            f"{len(draw.prompt_ids)}, or other ones"
        )
    illegal = [each for each in choice.get("token_ids") or [] if each not in sampling.legal]
    if illegal:
        raise IllegalIds(
            f"{len(illegal)} ids in the answer to one request are outside the {len(sampling.legal)} legal ones, the first is "
            f"{illegal[0]}: the server does not restrict sampling to allowed_token_ids",
            len(illegal),
        )
    return _completion(choice, draw, frozenset(sampling.stop_ids), version)


def _completion(choice: Mapping[str, Any], draw: Draw, stops: frozenset[int], version: int) -> Completion:
    ids, logprobs = choice.get("token_ids"), _mapping(choice, "logprobs").get("token_logprobs")
    reason = choice.get("finish_reason")
    if reason not in ("stop", "length"):
        raise IncompleteAnswer(f"the server ended a sample with finish_reason {reason!r}")
    if not ids or not isinstance(logprobs, list) or len(logprobs) != len(ids):
        raise EngineError(
            f"a sample has {len(ids or ())} ids and {len(logprobs or ())} log-probs; one for each is needed. "
            "Does the server understand return_token_ids and logprobs?"
        )
    if [f"token_id:{each}" for each in ids] != choice["logprobs"].get("tokens"):
        raise EngineError("the ids of a sample are not those that its log-probs belong to")
    _check_logprobs(logprobs)
    stop_places = [place for place, each in enumerate(ids) if each in stops]
    ended_by_stop = stop_places == [len(ids) - 1] and len(ids) <= draw.max_new
    ended_by_budget = not stop_places and len(ids) == draw.max_new
    if reason == "stop" and not ended_by_stop:
        raise EngineError(
            f"a sample of {len(ids)} ids stopped at id {ids[-1]}, stop ids stand at {stop_places}: it must end with "
            f"its one stop id, within its budget of {draw.max_new}. Does the server add stop ids of its own?"
        )
    if reason == "length" and not ended_by_budget:
        raise EngineError(
            f"a sample ended for its length after {len(ids)} ids, its budget was {draw.max_new} and stop ids stand at "
            f"{stop_places}; is the server's --max-model-len long enough?"
        )
    return Completion(
        ids=np.array(ids, np.int64)[:, None],
        rollout_logprobs=np.array(logprobs, np.float32)[:, None],
        finish_reason=FinishReason.STOP if reason == "stop" else FinishReason.LENGTH,
        policy_version=version,
    )


def scores_of(answer: Any, ids: Sequence[int], positions: range) -> NDArray[np.float32]:
    """The log-probs in the server's answer to a `score_body`. Shapes: [len(positions)].

    Raises: IncompleteAnswer if positions are missing; EngineError if the answer has no log-prob of an id.
    """
    found = []
    for choice, position in zip(_choices(answer, len(positions)), positions, strict=True):
        alternatives = _mapping(choice, "logprobs").get("top_logprobs") or [{}]
        value = alternatives[0].get(f"token_id:{ids[position]}")
        if value is None:
            raise EngineError(
                f"the server gave no log-prob of id {ids[position]}; does it understand logprob_token_ids? "
                "vllm 0.32.0 does"
            )
        found.append(value)
    _check_logprobs(found)
    return np.array(found, np.float32)


def _choices(answer: Any, count: int) -> list[Mapping[str, Any]]:
    """The choices of an answer by their index."""
    choices = answer.get("choices") if isinstance(answer, Mapping) else None
    if not isinstance(choices, list) or not all(isinstance(choice, Mapping) for choice in choices):
        raise EngineError(f"the answer is no completion: {str(answer)[:200]!r}; is this a vLLM server?")
    by_index = {choice.get("index"): choice for choice in choices}
    if len(choices) < count:
        raise IncompleteAnswer(f"the server gave {len(choices)} samples, {count} were asked for")
    if len(choices) > count or by_index.keys() != set(range(count)):
        raise EngineError(f"the server gave samples {sorted(map(str, by_index))}, 0 to {count - 1} were asked for")
    return [by_index[index] for index in range(count)]


def _mapping(choice: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = choice.get(key)
    return value if isinstance(value, Mapping) else {}


def _check_logprobs(values: Sequence[Any]) -> None:
    """Raises: EngineError if one is no log-prob of an id that could be drawn."""
    for value in values:
        if not isinstance(value, float | int) or not math.isfinite(value) or not _NO_PROBABILITY < value <= _ROUNDING:
            raise EngineError(
                f"the server gave {value} for a log-prob; the policy's probabilities are not finite, or "
                "the server does not run with --logprobs-mode processed_logprobs"
            )
