"""HTTP to one or several SGLang servers: least-loaded dispatch, deadlines, bounded and counted retries.

Knows messages and servers; knows no policy.
"""

import asyncio
import itertools
import logging
import uuid
from collections.abc import Callable, Generator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeVar

import httpx2
from pydantic import ValidationError

from elocution.errors import ConfigError, EngineError, EngineUnavailable
from elocution.rollout.background import results_of
from elocution.rollout.sglang_protocol import (
    AbortRequest,
    BeginWeightUpdate,
    ContinueGeneration,
    DestroyWeightsUpdateGroup,
    EndWeightUpdate,
    GenerateRequest,
    GenerateResponse,
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

__all__ = ["ServerCounts", "ServerSettings", "SglangServers"]

logger = logging.getLogger(__name__)

_Message = TypeVar("_Message", bound=SglangMessage)
_Answer = TypeVar("_Answer")

# A request refused with one of these may succeed later or elsewhere; any other refusal is the request's own fault.
_PASSING_STATUS = frozenset({408, 425, 429, 500, 502, 503, 504})


@dataclass(frozen=True)
class ServerSettings:
    """Where the servers are and how long to wait. Each URL is one server, which may have `--dp-size` replicas itself.

    Units: seconds. `max_in_flight` counts requests for each server, `max_retries` further tries of one request. Let
    `timeout_s` be well above what the longest completion takes: a deadline that only long ones miss favours short ones.
    """

    urls: tuple[str, ...]
    max_in_flight: int = 64
    timeout_s: float = 600.0
    sync_timeout_s: float = 1800.0
    max_retries: int = 3
    retry_wait_s: float = 0.5
    api_key: str | None = field(default=None, repr=False)


@dataclass
class ServerCounts:
    """What happened to requests so far."""

    requests: int = 0
    retries: int = 0
    late: int = 0
    aborted: int = 0

    def metrics(self) -> dict[str, float]:
        """The counts by the names that they have in a run's metrics."""
        return {f"engine/{name}": count for name, count in asdict(self).items()}


@dataclass
class _Server:
    url: str
    in_flight: int = 0
    failures: int = 0
    chosen: int = 0


class _Passing(Exception):
    """A failure after which another try is worth it."""


class SglangServers:
    """A pool of servers with the same weights. Its methods block; none may be called from a running event loop."""

    def __init__(self, settings: ServerSettings, *, transport: httpx2.AsyncBaseTransport | None = None) -> None:
        """`transport` takes the place of sockets.

        Raises: ConfigError if there is no URL, or one twice.
        """
        urls = [url.rstrip("/") for url in settings.urls]
        if not urls or len(set(urls)) < len(urls):
            raise ConfigError(f"SGLang needs at least one URL and each of them once, got {list(settings.urls)}")
        self.settings = settings
        self.counts = ServerCounts()
        self._transport = transport
        self._servers = [_Server(url) for url in urls]

    def generate(self, requests: Sequence[GenerateRequest]) -> list[GenerateResponse]:
        """The answer to each request, in order; errors as in `stream`."""
        answers = dict(self.stream(requests))
        return [answers[index] for index in range(len(requests))]

    def stream(self, requests: Sequence[GenerateRequest]) -> Generator[tuple[int, GenerateResponse]]:
        """The number of each request and its answer, as soon as it is there.

        Every try has a request id of its own, which the answer must repeat. Requests that are open when the iterator is
        closed are given up.

        Raises: EngineUnavailable if a request has used up its tries; EngineError if a server refuses one.
        """
        for server in self._servers:
            server.failures = 0  # a server that was down may be up again

        async def all_of_them(
            client: httpx2.AsyncClient, found: Callable[[tuple[int, GenerateResponse]], None]
        ) -> None:
            slots = asyncio.Semaphore(self.settings.max_in_flight * len(self._servers))

            async def one(index: int, request: GenerateRequest) -> None:
                found((index, await self._generate_one(client, slots, request)))

            await _gather([one(index, request) for index, request in enumerate(requests)])

        yield from results_of(self._client(), all_of_them)

    def one_by_one(self) -> "list[SglangServers]":
        """Each server as a pool of its own, whose counts are those of this one."""
        alone = []
        for server in self._servers:
            pool = SglangServers(replace(self.settings, urls=(server.url,)), transport=self._transport)
            pool.counts = self.counts
            alone.append(pool)
        return alone

    def model_info(self) -> list[ModelInfo]:
        """What each server says that it serves."""
        return self._everywhere("GET", "/model_info", None, _parser(ModelInfo))

    def check_health(self) -> None:
        """Raises: EngineError naming a server that is not up."""
        self._everywhere("GET", "/health", None, _nothing)

    def pause(self) -> None:
        """Ends all requests and holds new ones back."""
        self._everywhere("POST", "/pause_generation", PauseGeneration(), _nothing)

    def resume(self) -> None:
        """Lets requests run again."""
        self._everywhere("POST", "/continue_generation", ContinueGeneration(), _nothing)

    def flush_cache(self) -> None:
        """Forgets all cached prompts. A server refuses while requests run."""
        self._everywhere("POST", "/flush_cache", None, _nothing)

    def update_weights(self, message: UpdateWeightsFromDisk) -> None:
        """Raises: EngineError if a server did not load the weights; it may then hold a mixture."""
        self._check(self._everywhere("POST", "/update_weights_from_disk", message, _parser(UpdateWeightsResult)))

    def update_weight_version(self, message: UpdateWeightVersion) -> None:
        self._check(self._everywhere("POST", "/update_weight_version", message, _parser(UpdateWeightsResult)))

    def tensor_parallel_sizes(self) -> list[int]:
        """How many processes each server has that hold a part of the weights.

        Raises: EngineError if one has data-parallel replicas or pipeline stages, which SGLang does not bring into a group.
        """
        infos = self._everywhere("GET", "/server_info", None, _parser(ServerInfo))
        for server, info in zip(self._servers, infos, strict=True):
            if (info.dp_size, info.pp_size) != (1, 1):
                raise EngineError(
                    f"{server.url} has {info.dp_size} data-parallel replicas and {info.pp_size} pipeline stages, which cannot be "
                    "sent weights; start a server for each replica, or use another rollout.sync.strategy"
                )
        return [info.tp_size for info in infos]

    def init_group(self, messages: Sequence[InitWeightsUpdateGroup]) -> None:
        """Brings each server into a process group, by a message of its own; returns when all are in it."""
        self._check(self._each("POST", "/init_weights_update_group", messages, _parser(UpdateWeightsResult)))

    def destroy_group(self, name: str) -> None:
        """Takes the servers out of a process group."""
        message = DestroyWeightsUpdateGroup(group_name=name)
        self._check(self._everywhere("POST", "/destroy_weights_update_group", message, _parser(UpdateWeightsResult)))

    def begin_weight_update(self) -> None:
        """Makes the servers ready for weights that come in parts."""
        self._check(self._everywhere("POST", "/begin_weight_update", BeginWeightUpdate(), _parser(UpdateWeightsResult)))

    def update_weights_from_distributed(self, message: UpdateWeightsFromDistributed) -> None:
        """Returns when the servers have received what rank 0 of the group sends meanwhile."""
        self._check(self._everywhere("POST", "/update_weights_from_distributed", message, _parser(UpdateWeightsResult)))

    def end_weight_update(self) -> None:
        """Makes the servers use the weights that have come."""
        self._check(self._everywhere("POST", "/end_weight_update", EndWeightUpdate(), _parser(UpdateWeightsResult)))

    def load_adapter(self, message: LoadLoraAdapter) -> list[set[str]]:
        """The names of the adapters that each server has then.

        Raises: EngineError if a server did not load the adapter, or does not list it afterwards.
        """
        results = self._everywhere("POST", "/load_lora_adapter", message, _parser(LoraResult))
        for server, result in zip(self._servers, results, strict=True):
            if not result.success or message.lora_name not in (result.loaded_adapters or {}):
                raise EngineError(
                    f"{server.url} did not load the adapter {message.lora_path}: {result.error_message or result}"
                )
        return [set(result.loaded_adapters or ()) for result in results]

    def unload_adapter(self, message: UnloadLoraAdapter) -> None:
        for server, result in zip(
            self._servers,
            self._everywhere("POST", "/unload_lora_adapter", message, _parser(LoraResult)),
            strict=True,
        ):
            if not result.success:
                raise EngineError(f"{server.url} did not unload {message.lora_name}: {result.error_message}")

    def _check(self, results: Sequence[UpdateWeightsResult]) -> None:
        for server, result in zip(self._servers, results, strict=True):
            if not result.success:
                raise EngineError(f"{server.url} did not take the weights: {result.message}")

    def _client(self) -> httpx2.AsyncClient:
        key = self.settings.api_key
        return httpx2.AsyncClient(
            headers={"Authorization": f"Bearer {key}"} if key else {},
            timeout=None,  # deadlines are kept around whole requests
            limits=httpx2.Limits(max_connections=None),
            transport=self._transport,
            trust_env=False,
        )

    async def _generate_one(
        self, client: httpx2.AsyncClient, slots: asyncio.Semaphore, request: GenerateRequest
    ) -> GenerateResponse:
        self.counts.requests += 1
        async with slots:
            for attempt in itertools.count():
                # Servers that failed come last: one that refuses at once would else seem the least loaded.
                server = min(self._servers, key=lambda one: (one.failures, one.in_flight, one.chosen))
                tried = request.model_copy(update={"rid": f"{request.rid}-{uuid.uuid4().hex}"})
                server.in_flight += 1
                server.chosen += 1
                try:
                    answer = await self._try(client, server, tried)
                except _Passing as error:
                    server.failures += 1
                    if attempt >= self.settings.max_retries:
                        raise EngineUnavailable(
                            f"a request to SGLang failed {attempt + 1} times, last at {server.url}: {error}"
                        ) from error
                    logger.warning("%s: %s; trying again", server.url, error)
                    self.counts.retries += 1
                else:
                    server.failures = 0
                    return answer
                finally:
                    server.in_flight -= 1
                await asyncio.sleep(self.settings.retry_wait_s * 2**attempt)
        raise AssertionError("unreachable")

    async def _try(self, client: httpx2.AsyncClient, server: _Server, request: GenerateRequest) -> GenerateResponse:
        try:
            async with asyncio.timeout(self.settings.timeout_s):
                response = await client.post(f"{server.url}/generate", json=request.to_wire())
        except TimeoutError as error:
            self.counts.late += 1
            await self._abandon(client, server, request.rid)
            raise _Passing(f"no answer in {self.settings.timeout_s:g} s") from error
        except httpx2.TransportError as error:
            raise _Passing(f"{type(error).__name__}: {error}") from error
        if response.status_code in _PASSING_STATUS:
            raise _Passing(f"status {response.status_code}: {response.text[:300]}")
        if response.status_code != 200:
            raise EngineError(f"{server.url} refused a request, status {response.status_code}: {response.text[:500]}")
        try:
            answer = GenerateResponse.model_validate_json(response.content)
        except ValidationError as error:
            raise EngineError(f"{server.url} answered what is no answer of SGLang: {error}") from error
        if answer.meta_info.id != request.rid:
            raise EngineError(
                f"{server.url} answered request {request.rid} with that to {answer.meta_info.id}: answers are crossed"
            )
        if answer.meta_info.finish_reason.type == "abort":
            self.counts.aborted += 1
            raise _Passing(f"the request was aborted: {answer.meta_info.finish_reason.message}")
        return answer

    async def _abandon(self, client: httpx2.AsyncClient, server: _Server, rid: str) -> None:
        """Tells the server that nobody waits for the answer any more; it may be past hearing it."""
        try:
            async with asyncio.timeout(5):
                await client.post(f"{server.url}/abort_request", json=AbortRequest(rid=rid).to_wire())
        except (TimeoutError, httpx2.TransportError) as error:
            logger.warning("%s: could not abort a late request: %s", server.url, error)

    def _everywhere(
        self, method: str, path: str, message: SglangMessage | None, parse: Callable[[httpx2.Response], _Answer]
    ) -> list[_Answer]:
        """As `_each`, with the same message to all."""
        return self._each(method, path, [message] * len(self._servers), parse)

    def _each(
        self,
        method: str,
        path: str,
        messages: Sequence[SglangMessage | None],
        parse: Callable[[httpx2.Response], _Answer],
    ) -> list[_Answer]:
        """One call to every server, all at once, not tried again.

        Raises: EngineUnavailable naming the server that cannot be reached, fails or is late; EngineError if one refuses.
        """

        async def one(client: httpx2.AsyncClient, server: _Server, message: SglangMessage | None) -> _Answer:
            body = None if message is None else message.to_wire()
            try:
                async with asyncio.timeout(self.settings.sync_timeout_s):
                    response = await client.request(method, f"{server.url}{path}", json=body)
            except TimeoutError as error:
                raise EngineUnavailable(
                    f"{server.url}{path} gave no answer in {self.settings.sync_timeout_s:g} s"
                ) from error
            except httpx2.TransportError as error:
                raise EngineUnavailable(
                    f"cannot reach {server.url}{path}: {type(error).__name__}: {error}; is the server up?"
                ) from error
            if response.status_code != 200:
                kind = EngineUnavailable if response.status_code in _PASSING_STATUS else EngineError
                raise kind(f"{server.url}{path} failed, status {response.status_code}: {response.text[:500]}")
            try:
                return parse(response)
            except ValidationError as error:
                raise EngineError(f"{server.url}{path} answered what is no answer of SGLang: {error}") from error

        async def everywhere() -> list[_Answer]:
            async with self._client() as client:
                return await _gather(
                    [one(client, server, message) for server, message in zip(self._servers, messages, strict=True)]
                )

        return asyncio.run(everywhere())


async def _gather(jobs: Sequence[Any]) -> list[Any]:
    """Results in order; the first failure ends the others and is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(job) for job in jobs]
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return [task.result() for task in tasks]


def _parser(kind: type[_Message]) -> Callable[[httpx2.Response], _Message]:
    return lambda response: kind.model_validate_json(response.content)


def _nothing(response: httpx2.Response) -> None:
    """For answers that say no more than their status."""
