"""Rollouts from SGLang servers for policies of one channel: ids in, ids and log-probs out.

What log-probs a server gives (temperature, mask) is read from its source and cannot be told from an answer; so every
publish draws probes and compares their log-probs with the policy's own.
"""

import itertools
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from elocution.errors import ConfigError, EngineError, EngineUnavailable, RatioMismatch
from elocution.policies.base import Policy
from elocution.rollout.agreement import LogprobGap, logprob_gap, score_completions
from elocution.rollout.base import RolloutRequest, in_order
from elocution.rollout.canary import check_answers_uncrossed
from elocution.rollout.sglang_answers import check_version, read_finish, read_ids, read_wanted
from elocution.rollout.sglang_client import SglangServers
from elocution.rollout.sglang_legal import legal_ranges, processor_string
from elocution.rollout.sglang_protocol import GenerateRequest, GenerateResponse, SamplingParams
from elocution.rollout.sglang_settings import SglangSettings, check_server_defaults
from elocution.rollout.sglang_sync import SglangSync
from elocution.rollout.sync.base import Probe
from elocution.types import Completion

__all__ = ["SglangEngine", "check_servers", "seed_number"]

logger = logging.getLogger(__name__)


class SglangEngine:
    """Samples at `temperature` from the legal ids of `policy`, on servers that hold its weights.

    A completion follows from its seed only on servers with `--enable-deterministic-inference`, and there not across
    server versions. One request is sent for each completion: with `n` all siblings would have one seed.
    """

    def __init__(
        self,
        policy: Policy,
        servers: SglangServers,
        sync: SglangSync,
        *,
        temperature: float,
        probes: Sequence[RolloutRequest] = (),
        settings: SglangSettings,
        revive: Callable[[], None] = lambda: None,
    ) -> None:
        """`sync` publishes to `servers`; engines may share both. `probes` are drawn at each publish.

        Engines whose weights are brought by `load_weights` need none. `revive` returns when all servers answer again, or
        raises EngineUnavailable.

        Raises: ConfigError if the policy has several channels, or probes are not two different prompts or more.
        """
        if policy.num_channels != 1:
            raise ConfigError(f"SglangEngine draws one channel, the policy has {policy.num_channels}")
        if probes and len({probe.prompt_ids.tobytes() for probe in probes}) < max(2, len(probes)):
            raise ConfigError("an SGLang engine needs at least two probes, each with a prompt of its own")
        self.temperature = temperature
        self._policy, self._settings = policy, settings
        self._servers, self._sync, self._revive = servers, sync, revive
        self._probes = [RolloutRequest(probe.prompt_ids, probe.seeds[:1], probe.max_new) for probe in probes]
        self._legal = policy.legal_ids.numpy()
        # The same in every request, and walking 65 537 ids for each would cost more than sending it.
        self._legal_ranges, self._processor = legal_ranges(self._legal.tolist()), processor_string()
        self._version: int | None = None
        self._has_proof = False
        self._scored: tuple[Sequence[Probe], list[NDArray[np.float32]], float] | None = None
        self._illegal_ids = self._redrawn = self._reloads = self._stale = 0
        self._gap: LogprobGap | None = None

    def metrics(self) -> dict[str, float]:
        """Counts since the start; distance of the last probes' log-probs from the policy's, nats.

        `reloads` are of servers that had lost their weights, `stale` answers that were drawn with other weights.
        """
        counts = {
            **self._servers.counts.metrics(),
            "engine/reloads": self._reloads,
            "engine/stale": self._stale,
            "engine/illegal_ids": self._illegal_ids,
            "engine/redrawn": self._redrawn,
        }
        if self._gap is None:
            return counts
        return counts | {"engine/probe_gap_mean_nats": self._gap.mean, "engine/probe_gap_max_nats": self._gap.max}

    def publish(self, version: int) -> None:
        """Raises: RatioMismatch if the probes' log-probs are not the policy's; EngineError if a server fails."""
        if not self._probes:
            raise EngineError("this engine has no probes: bring its weights by load_weights, and prove them")
        if not self._has_proof:
            check_servers(self._servers)
        self._version = None  # until the servers are proven to have the new weights
        self._sync.publish(version)
        try:
            self._version = version
            self._prove()
        except EngineError:
            self._version = None
            raise
        self._has_proof = True

    def load_weights(self, directory: Path, version: int) -> None:
        """Makes the servers draw with the checkpoint in `directory`, and stamps `version`.

        Raises: EngineError if a server did not take it.
        """
        self._load(directory, version, "weights")

    def load_adapter(self, directory: Path, version: int) -> None:
        """As `load_weights`, for an adapter on the weights that the servers were started with."""
        self._load(directory, version, "adapter")

    def _load(self, directory: Path, version: int, kind: Literal["weights", "adapter"]) -> None:
        self._version = self._scored = None
        self._sync.load(directory.absolute(), version, kind=kind)
        self._version = version

    def score(self, probes: Sequence[Probe]) -> list[NDArray[np.float32]]:
        """Log-probs, nats, of each completion's ids over the legal ids at the engine's temperature. Shapes: [T] each.

        Every server is asked, with one short request for each position: SGLang's log-probs of a prompt know neither mask
        nor temperature, those of a draw do. A server that has to load the same weights again must give the same.

        Raises: RatioMismatch if servers disagree; EngineError.
        """
        scores = self._score(probes)
        self._scored = probes, scores, self.temperature
        return scores

    def _score(self, probes: Sequence[Probe]) -> list[NDArray[np.float32]]:
        asked = [
            (RolloutRequest(np.concatenate([prompt, ids[:place, 0]]), ((0,),), 1), int(ids[place, 0]))
            for prompt, ids in probes
            for place in range(len(ids))
        ]
        requests = [
            self._request(request, 0, 0).model_copy(update={"token_ids_logprob": (wanted,)})
            for request, wanted in asked
        ]
        version = self._version
        assert version is not None  # else no request could have been made
        by_server = []
        for servers in self._servers.one_by_one():
            found = []
            for (request, wanted), answer in zip(asked, servers.generate(requests), strict=True):
                check_version(answer, version)
                read_ids(answer, request.prompt_ids.tolist(), 1)
                found.append(read_wanted(answer, wanted))
            by_server.append(np.array(found, np.float32))
        apart = max(float(np.abs(one - by_server[0]).max()) for one in by_server)
        if not apart <= self._settings.max_mean_gap:
            raise RatioMismatch(f"two SGLang servers give log-probs that differ by {apart:.2e} nats for the same ids")
        ends = np.cumsum([len(ids) for _, ids in probes])[:-1]
        return list(np.split(by_server[0], ends))

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
        with closing(self._servers.stream([self._request(requests[i], k, redraws[i, k]) for i, k in rows])) as answers:
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
        if self._settings.legal == "mask":
            raise EngineError("a completion holds ids that are not legal: the server does not apply the mask")
        if count > self._settings.max_redraws:
            raise EngineError(
                f"a completion holds ids that are not legal: after {self._settings.max_redraws} redraws; use legal = 'mask' "
                "with a server started with --enable-custom-logit-processor"
            )
        self._redrawn += 1

    def _restore_lost(self) -> None:
        """Servers that were started again get their weights, and must score as they did when these were proven."""
        lost = self._sync.restore()
        self._reloads += lost
        if not lost or self._scored is None:
            return
        probes, before, temperature = self._scored
        with self._at_temperature(temperature):
            after = self._score(probes)
        apart = max(float(np.abs(one - other).max()) for one, other in zip(before, after, strict=True))
        if not apart <= self._settings.max_mean_gap:
            raise RatioMismatch(
                f"an SGLang server has loaded its weights again, and now gives log-probs that differ by {apart:.2e} nats from "
                "those by which they were proven"
            )

    @contextmanager
    def _at_temperature(self, temperature: float) -> Iterator[None]:
        kept, self.temperature = self.temperature, temperature
        try:
            yield
        finally:
            self.temperature = kept

    def _request(self, request: RolloutRequest, sibling: int, attempt: int) -> GenerateRequest:
        if self._version is None:
            raise EngineError("no weights have been published to the SGLang servers")
        masked = self._settings.legal == "mask"
        seed = request.seeds[sibling]
        return GenerateRequest(
            rid="elocution",
            input_ids=tuple(request.prompt_ids.tolist()),
            sampling_params=SamplingParams(
                max_new_tokens=request.max_new,
                temperature=self.temperature,
                stop_token_ids=tuple(sorted(self._policy.stop_ids)),
                sampling_seed=seed_number((*seed, attempt) if attempt else seed),
                custom_params={"legal_ranges": self._legal_ranges} if masked else None,
            ),
            return_logprob=True,
            return_prompt_token_ids=True,
            custom_logit_processor=self._processor if masked else None,
            lora_path=self._sync.adapter,
        )

    def _read(self, request: RolloutRequest, answer: GenerateResponse) -> Completion | None:
        """The completion, or None if it holds an illegal id."""
        assert self._version is not None
        check_version(answer, self._version)
        ids, logprobs = read_ids(answer, request.prompt_ids.tolist(), request.max_new)
        illegal = int((~np.isin(ids, self._legal)).sum())
        if illegal:
            self._illegal_ids += illegal
            return None
        return Completion(ids, logprobs, read_finish(answer, request.max_new), self._version)

    def _prove(self) -> None:
        prompts = [probe.prompt_ids for probe in self._probes]
        completions = [group[0] for group in self.generate(self._probes)]
        ids = [completion.ids for completion in completions]
        own = score_completions(self._policy, prompts, ids, temperature=self.temperature)
        self._gap = logprob_gap([completion.rollout_logprobs for completion in completions], own)
        if not self._has_proof:
            check_answers_uncrossed(self._policy, prompts, ids, temperature=self.temperature)
        if self._gap.mean > self._settings.max_mean_gap:
            raise RatioMismatch(
                f"SGLang's log-probs of {self._gap.num_cells} ids that it drew differ from the policy's by "
                f"{self._gap.mean:.3g} nats on average, {self._gap.max:.3g} at most (bound on the mean: "
                f"{self._settings.max_mean_gap:g}). Either it has other weights, or it computes in another precision, "
                "or its log-probs leave out the temperature (SGLANG_RETURN_ORIGINAL_LOGPROB) or the mask"
            )


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
