"""One KServe v2 inference request over pooled connections, within a deadline. Decides nothing about trying again."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus

import httpx2

from elocution.errors import ProtocolError, RewardError, RewardUnavailable
from elocution.kserve import JSON_LENGTH_HEADER, InferResponse, Tensor, decode_response, encode_request

__all__ = ["KServeClient", "RequestRefused", "ServedReward"]

_LONGEST_ANSWER = 64 * 2**20
_CONNECT_S = 10.0
# Statuses that another try, or another server, may answer otherwise.
_TRANSIENT = {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS}


class RequestRefused(RewardError):
    """The server understood the request and will not answer it; sending it again would not help."""


@dataclass(frozen=True)
class ServedReward:
    """What a server says of its reward: `version` is equal for servers that score alike; `inputs` are the tensors it takes."""

    version: str
    inputs: frozenset[str]


class KServeClient:
    """Safe to use from several threads; `close` ends its connections."""

    def __init__(self, *, model: str, token: str | None, connections: int) -> None:
        self._model = model
        self._client = httpx2.Client(
            headers={"Authorization": f"Bearer {token}"} if token else {},
            limits=httpx2.Limits(max_connections=connections, max_keepalive_connections=connections),
            follow_redirects=False,
            trust_env=False,  # a proxy of the environment is not meant for servers of one's own
        )

    def close(self) -> None:
        self._client.close()

    def describe(self, url: str, *, timeout_s: float) -> "ServedReward":
        """What the server at `url` says of its reward.

        Raises: RewardUnavailable, RequestRefused.
        """
        body, _ = self._exchange("GET", f"{url}/v2/models/{self._model}", time.monotonic() + timeout_s)
        try:
            metadata = httpx2.Response(200, content=body).json()
            inputs = frozenset(str(one["name"]) for one in metadata["inputs"])
            return ServedReward(str(metadata["parameters"]["reward_version"]), inputs)
        except (ValueError, KeyError, TypeError) as error:
            raise RequestRefused(f"{url} serves {self._model}, but is no elocution reward server") from error

    def infer(
        self, url: str, inputs: Sequence[Tensor], *, outputs: Sequence[str], request_id: str, deadline: float
    ) -> InferResponse:
        """The named `outputs` for `inputs`; `deadline` is in seconds of `time.monotonic`.

        Raises: RewardUnavailable if no whole answer comes in time, or it answers another request;
        RequestRefused if the server will not answer.
        """
        message = encode_request(inputs, outputs=outputs, request_id=request_id)
        address = f"{url}/v2/models/{self._model}/infer"
        body, json_length = self._exchange("POST", address, deadline, message.body, message.headers)
        try:
            response = decode_response(body, json_length)
        except ProtocolError as error:
            raise RewardUnavailable(f"{url} gave a broken answer: {error}") from error
        if response.id != request_id:
            raise RewardUnavailable(f"{url} answered the request {response.id!r:.60}, not {request_id!r}")
        missing = [name for name in outputs if name not in response.outputs]
        if missing:
            raise RewardUnavailable(f"{url} left out the output {missing[0]}")
        return response

    def _exchange(
        self, method: str, address: str, deadline: float, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> tuple[bytes, int | None]:
        """Body and length of its JSON of a good answer."""
        left = deadline - time.monotonic()
        if left <= 0:
            raise RewardUnavailable(f"no time is left to ask {address}")
        timeout = httpx2.Timeout(left, connect=min(left, _CONNECT_S))
        try:
            with self._client.stream(method, address, content=body, headers=headers, timeout=timeout) as response:
                content = _read(response, deadline, address)
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            raise RewardUnavailable(f"{address}: {type(error).__name__}: {error}") from error
        if response.status_code == HTTPStatus.OK:
            length = response.headers.get(JSON_LENGTH_HEADER)
            return content, int(length) if length is not None and length.isdecimal() else None
        reason = f"{address} answered {response.status_code}: {content[:500].decode(errors='replace')}"
        if response.is_server_error or response.status_code in _TRANSIENT:
            raise RewardUnavailable(reason)
        raise RequestRefused(reason)


def _read(response: httpx2.Response, deadline: float, address: str) -> bytes:
    """The whole body; a server that sends a little at a time does not stretch the deadline."""
    chunks, size = [], 0
    for chunk in response.iter_bytes():
        size += len(chunk)
        if size > _LONGEST_ANSWER:
            raise RewardUnavailable(f"{address} answered with more than {_LONGEST_ANSWER} bytes")
        if time.monotonic() > deadline:
            raise RewardUnavailable(f"{address} did not finish its answer in time")
        chunks.append(chunk)
    return b"".join(chunks)
