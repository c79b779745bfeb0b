"""Completions drawn by vLLM servers over HTTP, for policies of one codebook, with exact sampling log-probs."""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from elocution.errors import EngineError, RatioMismatch
from elocution.policies.base import Policy
from elocution.rollout.base import RolloutRequest, in_order
from elocution.rollout.completions_api import (
    MAX_SCORED_IDS,
    IllegalIds,
    Sampling,
    completion_body,
    completion_of,
    plan_draws,
    score_body,
    scores_of,
)
from elocution.rollout.vllm_servers import Question, VllmServers
from elocution.types import Completion

__all__ = ["TokenSequence", "VllmEngine"]

TokenSequence = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Prompt ids [L] and completion ids [T, 1]."""

# How far log-probs may be apart that two programs compute with the same weights: between the tiny checkpoint and vLLM
# at most 1e-5 in fp32.
_TOLERANCES = {torch.bfloat16: 0.5}
_TOLERANCE = 1e-3


class VllmEngine:
    """Samples at `temperature` from the legal ids of `policy`, with the weights that were loaded last into its servers.

    `counts` has what `vllm_servers.COUNTED` names, of all engines on the same servers.
    """

    def __init__(
        self,
        policy: Policy,
        servers: VllmServers,
        *,
        temperature: float,
        sleeps: bool = False,
    ) -> None:
        """`policy` draws one id at a position. With `sleeps`, the servers give their GPU memory back after each batch."""
        self._policy, self._servers = policy, servers
        self.temperature = temperature
        self._sleeps = sleeps

    @property
    def counts(self) -> Counter[str]:
        """How often something had to be done again, since the servers were started."""
        return self._servers.counts

    def load_weights(self, directory: Path, version: int) -> None:
        """Makes the servers draw with the checkpoint in `directory`; completions are stamped `version`.

        The folder must stay until other weights are loaded. Raises: as `VllmServers.load_weights`.
        """
        self._servers.load_weights(directory, version)

    def load_adapter(self, directory: Path, version: int) -> None:
        """As `load_weights`, for an adapter on top of the weights that the servers were started with."""
        self._servers.load_adapter(directory, version)

    def generate(self, requests: Sequence[RolloutRequest]) -> list[list[Completion]]:
        """The completions of each request, in the order of its seeds; errors as in `stream`."""
        return in_order(requests, self.stream(requests))

    def stream(self, requests: Sequence[RolloutRequest]) -> Iterator[tuple[int, int, Completion]]:
        """Each completion as it arrives, with the numbers of its request and seed; weights cannot change before the last.

        Raises: EngineError if an answer is not what was asked for; EngineUnavailable if no server answers.
        """
        with self._servers.lock:
            yield from self._stream(requests)

    def score(self, probes: Sequence[TokenSequence]) -> list[NDArray[np.float32]]:
        """Log-probs, nats, of each completion's ids over the legal ids at the engine's temperature. Shapes: [T] each.

        Every server is asked. One short request for each position: meant for probes.

        Raises: RatioMismatch if servers disagree; EngineError, EngineUnavailable.
        """
        sampling, model, salt = self._sampling(), self._servers.model, self._servers.token
        questions, owners = [], []
        for owner, (prompt_ids, completion_ids) in enumerate(probes):
            ids = completion_ids[:, 0].tolist()
            for start in range(0, len(ids), MAX_SCORED_IDS):
                positions = range(start, min(start + MAX_SCORED_IDS, len(ids)))
                body = score_body(prompt_ids.tolist(), ids, positions, sampling, model=model, cache_salt=salt)
                questions.append(Question(body, partial(scores_of, ids=ids, positions=positions)))
                owners.append(owner)
        scores = self._servers.ask_each(questions, self._check_agreement)
        return [
            np.concatenate([part for part, owner in zip(scores, owners, strict=True) if owner == index])
            for index in range(len(probes))
        ]

    def _check_agreement(self, ones: list[NDArray[np.float32]], others: list[NDArray[np.float32]]) -> None:
        """Raises: RatioMismatch unless two servers, or one before and after it has loaded again, score alike."""
        apart = max((float(np.abs(a - b).max()) for a, b in zip(ones, others, strict=True)), default=0.0)
        if apart > self._tolerance:
            raise RatioMismatch(
                f"two servers, or one since it has loaded its weights again, give log-probs that differ by {apart:.2e} "
                f"(bound {self._tolerance:g}) for the same ids: they do not hold the same weights"
            )

    def _stream(self, requests: Sequence[RolloutRequest]) -> Iterator[tuple[int, int, Completion]]:
        servers, version = self._servers, self._servers.version
        if version is None:
            raise EngineError("no weights have been loaded into the servers")
        self._check_lengths(requests)
        sampling, model, salt = self._sampling(), servers.model, servers.token
        draws = plan_draws(requests)
        questions = [
            Question(
                completion_body(draw, sampling, model=model, cache_salt=salt),
                partial(completion_of, draw=draw, sampling=sampling, version=version),
            )
            for draw in draws
        ]
        try:
            for number, completion in servers.ask(questions):
                yield draws[number].request, draws[number].sibling, completion
        except IllegalIds as error:
            self.counts["illegal_ids"] += error.count
            raise
        if self._sleeps:
            servers.sleep()

    def _sampling(self) -> Sampling:
        legal_ids = tuple(self._policy.legal_ids.tolist())
        return Sampling(self.temperature, legal_ids, tuple(sorted(self._policy.stop_ids)))

    @property
    def _tolerance(self) -> float:
        return _TOLERANCES.get(self._policy.compute_dtype, _TOLERANCE)

    def _check_lengths(self, requests: Sequence[RolloutRequest]) -> None:
        longest = max((len(request.prompt_ids) + request.max_new for request in requests), default=0)
        if longest > self._servers.max_length:
            raise EngineError(
                f"a prompt and its budget need {longest} ids, the server takes {self._servers.max_length}; "
                "raise its --max-model-len, or lower rollout.max_codes_per_char"
            )
