"""Rollouts from SGLang servers: prompts in, completions with their log-probs out, whoever fails in between.

What is sent and read for policies of one channel is in `sglang_ids`, for those of several in `sglang_rows`. Whoever loads
weights proves them: what log-probs a server gives cannot be told from an answer.
"""

import itertools
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from elocution.errors import EngineError, EngineUnavailable, RatioMismatch
from elocution.policies.base import Policy
from elocution.rollout.agreement import score_completions
from elocution.rollout.base import RolloutRequest, in_order
from elocution.rollout.sglang_answers import check_prompt, check_version, read_wanted
from elocution.rollout.sglang_client import SglangServers
from elocution.rollout.sglang_ids import IdWire
from elocution.rollout.sglang_protocol import GenerateRequest, GenerateResponse
from elocution.rollout.sglang_rows import RowWire
from elocution.rollout.sglang_settings import SglangSettings, check_server_defaults
from elocution.rollout.sglang_sync import SglangSync
from elocution.rollout.sync.agreement import prefix_share
from elocution.rollout.sync.base import Buckets, Probe
from elocution.types import Completion

__all__ = ["SglangEngine", "check_servers", "seed_number"]

logger = logging.getLogger(__name__)

# Of the ids that a server draws greedily: another server, or the same with the weights loaded again, begins with as many.
_SAME_PREFIX = 0.5

_Said = list[NDArray[Any]]
"""Log-probs or ids of probes."""
_Difference = Callable[[_Said, _Said], str | None]
"""In which way two answers are not of the same weights; None if they may be."""


@dataclass(frozen=True)
class _Proven:
    """What the servers said when they were proven, how to ask them again, and why a second answer is another one."""

    ask: Callable[[], _Said]
    said: _Said
    difference: _Difference
    temperature: float


class SglangEngine:
    """Samples at `temperature` from the legal ids of `policy`, on servers that hold its weights.

    A completion follows from its seed only on servers with `--enable-deterministic-inference`, and there not across
    server versions; on the multi-channel fork it never does. One request is sent for each completion: with `n` all
    siblings would have one seed.
    """

    def __init__(
        self,
        policy: Policy,
        servers: SglangServers,
        sync: SglangSync,
        *,
        temperature: float,
        settings: SglangSettings,
        revive: Callable[[], None] = lambda: None,
    ) -> None:
        """`sync` brings weights to `servers`. `revive` returns when all servers answer again, or raises EngineUnavailable."""
        self.temperature = temperature
        self._policy, self._settings = policy, settings
        self._servers, self._sync, self._revive = servers, sync, revive
        self._wire = IdWire(policy, has_mask=settings.legal == "mask") if policy.num_channels == 1 else RowWire(policy)
        self._version: int | None = None
        self._proven: _Proven | None = None
        self._illegal_ids = self._redrawn = self._reloads = self._stale = self._scored_here = 0

    def metrics(self) -> dict[str, float]:
        """Counts since the start.

        `reloads` are of servers that had lost their weights, `stale` answers that were drawn with other weights,
        `scored_here` completions whose log-probs are the policy's own because the server gave none. Of several channels,
        `no_audio` are answers whose clip is empty, `text_only` those without any code.
        """
        counts = {
            **self._servers.counts.metrics(),
            "engine/reloads": self._reloads,
            "engine/stale": self._stale,
            "engine/illegal_ids": self._illegal_ids,
            "engine/redrawn": self._redrawn,
        }
        if isinstance(self._wire, IdWire):
            return counts
        return counts | {
            "engine/scored_here": self._scored_here,
            "engine/no_audio": self._wire.no_audio,
            "engine/text_only": self._wire.text_only,
        }

    def load_weights(self, directory: Path, version: int) -> None:
        """Makes the servers draw with the checkpoint in `directory`, and stamps `version`.

        Raises: EngineError if a server did not take it.
        """
        self._load(directory, version, "weights")

    def load_adapter(self, directory: Path, version: int) -> None:
        """As `load_weights`, for an adapter on the weights that the servers were started with."""
        self._load(directory, version, "adapter")

    def load_tensors(self, buckets: Buckets, version: int) -> None:
        """As `load_weights`, of tensors that are sent through a process group."""
        self._version = self._proven = None
        self._sync.load_tensors(buckets, version)
        self._version = version

    def _load(self, directory: Path, version: int, kind: Literal["weights", "adapter"]) -> None:
        self._version = self._proven = None
        self._sync.load(directory.absolute(), version, kind=kind)
        self._version = version

    def score(self, probes: Sequence[Probe]) -> list[NDArray[np.float32]]:
        """Log-probs, nats, of each completion's ids over the legal ids at the engine's temperature. Shapes: [T] each.

        Every server is asked, with one short request for each position: SGLang's log-probs of a prompt know neither mask
        nor temperature, those of a draw do. A server that has to load the same weights again must give the same. For
        policies of one channel: the multi-channel fork cannot score.

        Raises: RatioMismatch if servers disagree; EngineError.
        """
        return self._prove(lambda: self._score(probes), self._score_difference)

    def greedy(self, probes: Sequence[Probe]) -> list[NDArray[np.int64]]:
        """The most probable ids after each prompt, up to a stop id or as many as the probe's completion has. Shapes: [T', C] each.

        Every server is asked; where they part, the answer is that of the one that parts from the first earliest. A server that
        has to load the same weights again must give nearly the same.

        Raises: RatioMismatch if servers disagree; EngineError.
        """
        return self._prove(lambda: self._greedy(probes), self._greedy_difference)

    def _prove(self, ask: Callable[[], _Said], difference: _Difference) -> _Said:
        said = ask()
        self._proven = _Proven(ask, said, difference, self.temperature)
        return said

    def _score(self, probes: Sequence[Probe]) -> list[NDArray[np.float32]]:
        asked = [
            (np.concatenate([prompt, ids[:place, 0]]), int(ids[place, 0]))
            for prompt, ids in probes
            for place in range(len(ids))
        ]
        requests = [
            self._request(prompt, 1, seed=0).model_copy(update={"token_ids_logprob": (wanted,)})
            for prompt, wanted in asked
        ]
        by_server = []
        for answers in self._ask_each(requests):
            for answer, (prompt, _) in zip(answers, asked, strict=True):
                check_prompt(answer, prompt.tolist())
            found = [read_wanted(answer, wanted) for answer, (_, wanted) in zip(answers, asked, strict=True)]
            by_server.append([np.array(found, np.float32)])
        self._check_agreement(by_server, self._score_difference)
        ends = np.cumsum([len(ids) for _, ids in probes])[:-1]
        return list(np.split(by_server[0][0], ends))

    def _score_difference(self, ones: _Said, others: _Said) -> str | None:
        apart = max(float(np.abs(one - other).max()) for one, other in zip(ones, others, strict=True))
        return None if apart <= self._settings.max_mean_gap else f"log-probs that differ by {apart:.2e} nats"

    def _greedy(self, probes: Sequence[Probe]) -> list[NDArray[np.int64]]:
        asked = [RolloutRequest(p, ((0,),), len(ids) + self._policy.num_channels) for p, ids in probes]
        requests = [self._request(each.prompt_ids, each.max_new, seed=0, temperature=0.0) for each in asked]
        by_server = [
            [
                self._wire.read(answer, request).ids[: len(probe.completion_ids)]
                for answer, request, probe in zip(answers, asked, probes, strict=True)
            ]
            for answers in self._ask_each(requests)
        ]
        self._check_agreement(by_server, self._greedy_difference)
        return [min(ids, key=lambda own: prefix_share([own], ids[:1])) for ids in zip(*by_server, strict=True)]

    @staticmethod
    def _greedy_difference(ones: _Said, others: _Said) -> str | None:
        share = prefix_share(ones, others)
        return None if share >= _SAME_PREFIX else f"greedy ids of which {100 * share:.0f} % agree"

    def _ask_each(self, requests: Sequence[GenerateRequest]) -> Iterator[list[GenerateResponse]]:
        """The answers of each server to all requests, drawn with the version that was loaded."""
        for servers in self._servers.one_by_one():
            answers = servers.generate(requests)
            for answer in answers:
                self._check_version(answer)
            yield answers

    @staticmethod
    def _check_agreement(by_server: Sequence[_Said], difference: _Difference) -> None:
        for other in by_server[1:]:
            if reason := difference(by_server[0], other):
                raise RatioMismatch(f"two SGLang servers give {reason} for the same probes")

    def generate(self, requests: Sequence[RolloutRequest]) -> list[list[Completion]]:
        """The completions of each request, in the order of its seeds; errors as in `stream`."""
        return in_order(requests, self.stream(requests))

    def stream(self, requests: Sequence[RolloutRequest]) -> Iterator[tuple[int, int, Completion]]:
        """Each completion as it arrives, with the numbers of its request and seed.

        When servers fail, they are revived and given their weights again, and what is missing is asked for again,
        `max_recoveries` times.

        Raises: EngineUnavailable if they still fail; RatioMismatch if a server scores otherwise since it has loaded the
        weights again; EngineError if an answer is not what was asked for.
        """
        redraws = {
            (index, sibling): 0 for index, request in enumerate(requests) for sibling in range(len(request.seeds))
        }
        for recovery in itertools.count():
            try:
                self._restore_lost()
                while redraws:
                    yield from self._draw(requests, redraws)
                return
            except EngineUnavailable as error:
                if recovery >= self._settings.max_recoveries:
                    raise
                logger.warning("%s; %d completions are asked for again", error, len(redraws))
                self._revive()

    def _draw(
        self, requests: Sequence[RolloutRequest], redraws: dict[tuple[int, int], int]
    ) -> Iterator[tuple[int, int, Completion]]:
        """Asks once for each row in `redraws`, and takes those that came out of it.

        Raises: EngineUnavailable after the others, if answers were drawn with other weights.
        """
        rows = list(redraws)
        stale: EngineUnavailable | None = None
        with closing(
            self._servers.stream([self._draw_request(requests[i], k, redraws[i, k]) for i, k in rows])
        ) as answers:
            for place, answer in answers:
                index, sibling = rows[place]
                try:
                    completion = self._read(requests[index], answer)
                except EngineUnavailable as error:
                    stale = error
                    self._stale += 1
                    continue
                if completion is None:
                    redraws[index, sibling] += 1
                    self._check_redraws(redraws[index, sibling])
                else:
                    del redraws[index, sibling]
                    yield index, sibling, completion
        if stale is not None:
            raise stale

    def _check_redraws(self, count: int) -> None:
        if self._wire.has_mask:
            raise EngineError("a completion holds ids that are not legal: the server does not apply the mask")
        if count > self._settings.max_redraws:
            advice = (
                "use legal = 'mask' with a server started with --enable-custom-logit-processor"
                if self._policy.num_channels == 1
                else "does the server keep to the rules of the delay pattern?"
            )
            raise EngineError(
                f"a completion holds ids that are not legal: after {self._settings.max_redraws} redraws; {advice}"
            )
        self._redrawn += 1

    def _restore_lost(self) -> None:
        """Servers that were started again get their weights, and must say what they said when these were proven."""
        lost = self._sync.restore()
        self._reloads += lost
        if not lost or self._proven is None:
            return
        proven = self._proven
        with self._at_temperature(proven.temperature):
            reason = proven.difference(proven.said, proven.ask())
        if reason:
            raise RatioMismatch(
                f"an SGLang server has loaded its weights again, and now gives {reason} from what it was proven by"
            )

    @contextmanager
    def _at_temperature(self, temperature: float) -> Iterator[None]:
        kept, self.temperature = self.temperature, temperature
        try:
            yield
        finally:
            self.temperature = kept

    def _draw_request(self, request: RolloutRequest, sibling: int, attempt: int) -> GenerateRequest:
        seed = request.seeds[sibling]
        number = seed_number((*seed, attempt) if attempt else seed)
        return self._request(request.prompt_ids, request.max_new, seed=number)

    def _request(
        self, prompt_ids: NDArray[np.int64], max_new: int, *, seed: int, temperature: float | None = None
    ) -> GenerateRequest:
        if self._version is None:
            raise EngineError("no weights have been published to the SGLang servers")
        asked = self.temperature if temperature is None else temperature
        request = self._wire.request(prompt_ids, max_new, seed=seed, temperature=asked)
        return request.model_copy(update={"lora_path": self._sync.adapter})

    def _check_version(self, answer: GenerateResponse) -> None:
        assert self._version is not None  # else nothing could have been asked
        check_version(answer, self._version)

    def _read(self, request: RolloutRequest, answer: GenerateResponse) -> Completion | None:
        """The completion, or None if it holds an illegal id."""
        self._check_version(answer)
        assert self._version is not None
        drawn = self._wire.read(answer, request)
        illegal = int(self._policy.illegal_cells(drawn.ids).sum())
        if illegal:
            self._illegal_ids += illegal
            return None
        logprobs = drawn.logprobs
        if logprobs is None:
            self._scored_here += 1
            (logprobs,) = score_completions(
                self._policy, [request.prompt_ids], [drawn.ids], temperature=self.temperature
            )
        return Completion(drawn.ids, logprobs, drawn.finish_reason, self._version)


def check_servers(servers: SglangServers, architecture: str | None = None) -> None:
    """Raises: EngineUnavailable if a server is down; EngineError if it does not generate, or serves a model of another
    class than `architecture`; ConfigError if its defaults would act here.
    """
    servers.check_health()
    for url, info in zip(servers.settings.urls, servers.model_info(), strict=True):
        if not info.is_generation:
            raise EngineError(f"{url} serves {info.model_path}, which does not generate")
        if architecture is not None and info.architectures and architecture not in info.architectures:
            raise EngineError(
                f"{url} serves {info.model_path}, a {', '.join(info.architectures)}, the policy is a {architecture}; "
                "is it the model of this run?"
            )
        check_server_defaults(info.preferred_sampling_params, url=url)


def seed_number(seed: tuple[int, ...]) -> int:
    """One number in [0, 2^63) from a seed of several, as `sampling_seed` takes it."""
    return int(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0] >> np.uint64(1))
