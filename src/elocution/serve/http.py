"""What the servers' HTTP layers share: bodies read within limits, the token, every error a named answer."""

import asyncio
import hmac
import logging
from http import HTTPStatus

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from elocution.errors import ProtocolError

__all__ = ["RequestError", "answer_errors", "check_token", "read_body", "too_large"]

logger = logging.getLogger(__name__)

_BODY_TIMEOUT_S = 60.0


class RequestError(ProtocolError):
    """A request that cannot be answered: `kind` names the reason for programs, `status` is the HTTP status."""

    def __init__(self, kind: str, message: str, status: HTTPStatus = HTTPStatus.BAD_REQUEST) -> None:
        super().__init__(message)
        self.kind, self.status = kind, status


def check_token(request: Request, token: str | None) -> None:
    """Raises: RequestError unless the request bears `token`, where there is one."""
    sent = request.headers.get("authorization", "")
    if token is not None and not hmac.compare_digest(sent.encode(), f"Bearer {token}".encode()):
        raise RequestError(
            "unauthorized", "send the server's token as 'Authorization: Bearer TOKEN'", HTTPStatus.UNAUTHORIZED
        )


async def read_body(request: Request, largest: int, setting: str) -> bytes:
    """The whole body; `setting` names what sets the limit.

    Raises: RequestError if it has more than `largest` bytes, or does not arrive.
    """
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > largest:
        raise too_large(f"{announced} bytes", largest, setting)
    chunks, size = [], 0
    try:
        async with asyncio.timeout(_BODY_TIMEOUT_S):
            async for chunk in request.stream():
                size += len(chunk)
                if size > largest:
                    raise too_large("more bytes", largest, setting)
                chunks.append(chunk)
    except ClientDisconnect as error:
        raise RequestError("cut_body", "the client went away before its body was whole") from error
    except TimeoutError as error:
        raise RequestError(
            "slow_body", f"the body did not arrive within {_BODY_TIMEOUT_S:g} s", HTTPStatus.REQUEST_TIMEOUT
        ) from error
    return b"".join(chunks)


def too_large(found: str, largest: int, setting: str) -> RequestError:
    """The error for a body that has `found`, where `setting` allows `largest` bytes."""
    return RequestError(
        "body_too_large",
        f"the body has {found}, the limit is {largest} ({setting})",
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    )


def answer_errors(app: FastAPI) -> None:
    """Makes every error of `app` a JSON answer with `error` and `kind`."""
    app.add_exception_handler(RequestError, _answer_error)
    app.add_exception_handler(HTTPException, _answer_http_error)
    app.add_exception_handler(Exception, _answer_bug)


async def _answer_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestError)
    headers = {}
    if error.status is HTTPStatus.SERVICE_UNAVAILABLE:
        headers["Retry-After"] = "1"
    if error.status is HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse({"error": str(error), "kind": error.kind}, status_code=error.status, headers=headers)


async def _answer_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    reason = f"{request.method} {request.url.path[:120]}: {error.detail}"
    kind = HTTPStatus(error.status_code).name.lower()
    return JSONResponse({"error": reason, "kind": kind}, status_code=error.status_code, headers=error.headers)


async def _answer_bug(request: Request, error: Exception) -> Response:
    logger.error("a request failed", exc_info=error)
    reason = f"the server failed: {type(error).__name__}: {error}"
    return JSONResponse({"error": reason, "kind": "internal_error"}, status_code=HTTPStatus.INTERNAL_SERVER_ERROR)
