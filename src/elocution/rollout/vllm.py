"""Rollouts drawn by vLLM servers over HTTP, for policies of one codebook; exact sampling log-probs, proven weights."""

import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from elocution.errors import EngineError, RatioMismatch
from elocution.policies.base import Policy
from elocution.policies.lora import is_adapter
from elocution.rollout.agreement import score_completions
from elocution.rollout.base import RolloutRequest, as_stream
from elocution.rollout.completions_api import (
    MAX_SCORED_IDS,
    IllegalIds,
    Sampling,
    completion_body,
    completions_of,
    plan_draws,
    score_body,
    scores_of,
)
from elocution.rollout.tied_head import write_head
from elocution.rollout.vllm_servers import Question, VllmServers
from elocution.types import Completion

__all__ = ["TokenSequence", "VllmEngine"]

TokenSequence = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Prompt ids [L] and completion ids [T, 1]."""

# How far log-probs may be apart that two programs compute with the same weights: between the tiny checkpoint and vLLM
# at most 1e-5 in fp32.
_TOLERANCES = {torch.bfloat16: 0.5}
_TOLERANCE = 1e-3
_PROBES, _PROBE_LENGTH = 2, 12


class VllmEngine:
    """Samples from `policy` at `temperature`, restricted to its legal ids, on servers that other engines may share.

    `counts` has what `vllm_servers.COUNTED` names, of all engines on the same servers.
    """

    def __init__(
        self,
        policy: Policy,
        servers: VllmServers,
        *,
        temperature: float,
        save: Callable[[str], None],
        weights_path: Path,
        sleeps: bool = False,
    ) -> None:
        """`save` writes the policy, or its adapter, into a folder; `weights_path` holds such folders, seen by the servers.

        With `sleeps`, the servers give their GPU memory back after each batch.

        Raises: EngineError if the policy has several codebooks.
        """
        if policy.num_channels != 1:
            raise EngineError(
                f"the policy draws {policy.num_channels} ids at a position, a vLLM server draws one; "
                'set rollout.engine = "torch"'
            )
        self._policy, self._servers = policy, servers
        self.temperature = temperature
        self._save, self._weights_path, self._sleeps = save, weights_path, sleeps

    @property
    def counts(self) -> Counter[str]:
        """How often something had to be done again, since the servers were started."""
        return self._servers.counts

    def publish(self, version: int) -> None:
        """Writes the policy's weights, loads them into every server, and proves that it samples from them.

        Raises: RatioMismatch if a server's log-probs are not the policy's; EngineError, EngineUnavailable.
        """
        path = self._weights_path / f"version_{version}"
        shutil.rmtree(self._weights_path, ignore_errors=True)
        path.mkdir(parents=True)
        self._save(str(path))
        if is_adapter(path):
            self.load_adapter(path, version)
        else:
            write_head(path)
            self.load_weights(path, version)
        self._prove()

    def load_weights(self, directory: Path, version: int) -> None:
        """Makes the servers draw with the checkpoint in `directory`; completions are stamped `version`.

        The folder must stay until other weights are loaded. Raises: as `VllmServers.load_weights`.
        """
        self._servers.load_weights(directory, version)

    def load_adapter(self, directory: Path, version: int) -> None:
        """As `load_weights`, for an adapter on top of the weights that the servers were started with."""
        self._servers.load_adapter(directory, version)

    def stream(self, requests: Sequence[RolloutRequest]) -> Iterator[tuple[int, int, Completion]]:
        return as_stream(self.generate(requests))

    def generate(self, requests: Sequence[RolloutRequest]) -> list[list[Completion]]:
        """The completions of each request, in the order of its seeds; weights cannot change before all are drawn.

        Raises: EngineError if an answer is not what was asked for; EngineUnavailable if no server answers.
        """
        with self._servers.lock:
            return self._generate(requests)

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
        first, *others = self._servers.ask_each(questions)
        for other in others:
            apart = max(float(np.abs(one - two).max()) for one, two in zip(first, other, strict=True))
            if apart > self._tolerance:
                raise RatioMismatch(
                    f"two servers give log-probs that differ by {apart:.2e} (bound {self._tolerance:g}) for the same "
                    "ids: they do not hold the same weights"
                )
        return [
            np.concatenate([part for part, owner in zip(first, owners, strict=True) if owner == index])
            for index in range(len(probes))
        ]

    def _generate(self, requests: Sequence[RolloutRequest]) -> list[list[Completion]]:
        servers, version = self._servers, self._servers.version
        if version is None:
            raise EngineError("no weights have been published to the engine")
        self._check_lengths(requests)
        sampling, model, salt = self._sampling(), servers.model, servers.token
        draws = plan_draws(requests)
        questions = [
            Question(
                completion_body(draw, sampling, model=model, cache_salt=salt),
                partial(completions_of, draw=draw, sampling=sampling, version=version),
                draw.count,
            )
            for draw in draws
        ]
        try:
            answers = servers.ask(questions)
        except IllegalIds as error:
            self.counts["illegal_ids"] += error.count
            raise
        if self._sleeps:
            servers.sleep()
        found = {
            (draw.request, draw.first + place): completion
            for draw, completions in zip(draws, answers, strict=True)
            for place, completion in enumerate(completions)
        }
        return [
            [found[index, sibling] for sibling in range(len(request.seeds))] for index, request in enumerate(requests)
        ]

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

    def _prove(self) -> None:
        """Raises: RatioMismatch unless the servers' log-probs of fixed sequences are the policy's."""
        sequences = _probes(self._policy)
        prompts, completions = [prompt for prompt, _ in sequences], [completion for _, completion in sequences]
        own = score_completions(self._policy, prompts, completions, temperature=self.temperature)
        expected = [logprobs[:, 0] for logprobs in own]
        apart = max(float(np.abs(one - two).max()) for one, two in zip(self.score(sequences), expected, strict=True))
        if not apart <= self._tolerance:
            self._servers.version = None
            raise RatioMismatch(
                f"after weights were loaded, a server's log-probs differ from the policy's by {apart:.2e} "
                f"(bound {self._tolerance:g}): it serves another model, another precision, or did not load all weights"
            )


def _probes(policy: Policy) -> list[TokenSequence]:
    """Sequences of arbitrary ids, the same each time; prompts and completions are both of legal ids."""
    legal = policy.legal_ids.numpy()
    generator = np.random.default_rng(0)
    drawn = generator.choice(legal, (_PROBES, 2, _PROBE_LENGTH))
    return [(prompt, completion[:, None]) for prompt, completion in drawn]
