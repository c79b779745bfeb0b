"""JSON over HTTP to one engine server, with every failure typed and in the server's own words."""

from collections.abc import Mapping
from typing import Any

import httpx2

from elocution.errors import EngineError, EngineUnavailable

__all__ = ["JsonClient", "LateAnswer"]

_CONNECT_TIMEOUT_S = 10.0
_SHOWN_CHARS = 1000


class LateAnswer(EngineUnavailable):
    """The server did not answer in time."""


class JsonClient:
    """Calls one server; safe to use in many threads. Proxies that the environment names are not used."""

    def __init__(self, url: str, *, timeout_s: float) -> None:
        """`timeout_s` is the longest wait for an answer, seconds."""
        self.url = url
        self._timeout_s = timeout_s
        self._client = httpx2.Client(
            base_url=url,
            timeout=httpx2.Timeout(timeout_s, connect=min(timeout_s, _CONNECT_TIMEOUT_S), pool=None),
            limits=httpx2.Limits(max_connections=None),
            trust_env=False,
        )

    def get(self, path: str, parameters: Mapping[str, str] | None = None) -> Any:
        """The JSON that the server answers; errors as in `post`."""
        return self._call("GET", path, parameters, None)

    def post(self, path: str, body: Any = None, parameters: Mapping[str, str] | None = None) -> Any:
        """The JSON that the server answers, None if it answers nothing, the text itself if that is no JSON.

        Raises: LateAnswer; EngineUnavailable if the server cannot be reached or its status is 500 or above;
        EngineError with its message if it refuses the request.
        """
        return self._call("POST", path, parameters, body)

    def close(self) -> None:
        """Closes the connections."""
        self._client.close()

    def _call(self, method: str, path: str, parameters: Mapping[str, str] | None, body: Any) -> Any:
        try:
            response = self._client.request(method, path, params=parameters, json=body)
        except httpx2.ReadTimeout as error:
            raise LateAnswer(f"{self.url}{path} gave no answer within {self._timeout_s:g} s") from error
        except httpx2.TransportError as error:
            raise EngineUnavailable(f"cannot reach {self.url}{path}: {str(error) or type(error).__name__}") from error
        if response.status_code >= httpx2.codes.INTERNAL_SERVER_ERROR:
            raise EngineUnavailable(f"{self.url}{path} failed with status {response.status_code}: {_message(response)}")
        if not response.is_success:
            raise EngineError(f"{self.url}{path} refused with status {response.status_code}: {_message(response)}")
        return _decoded(response)


def _decoded(response: httpx2.Response) -> Any:
    if not response.content:
        return None
    try:
        return response.json()
    except ValueError:
        return response.text


def _message(response: httpx2.Response) -> str:
    """What an OpenAI-like server says went wrong, else the start of whatever it answered."""
    match _decoded(response):
        case {"error": {"message": str(message)}} | {"message": str(message)} | {"detail": str(message)}:
            return message[:_SHOWN_CHARS]
        case _:
            return response.text[:_SHOWN_CHARS] or "no message"
