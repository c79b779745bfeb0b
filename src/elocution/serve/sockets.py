"""Where a server listens, and the HTTP server itself."""

import errno
import ipaddress
import math
import socket

import uvicorn
from fastapi import FastAPI

from elocution.errors import ServerError

__all__ = ["bind", "is_loopback", "listen", "listening_url", "unusable", "uvicorn_server"]


def bind(host: str, port: int) -> socket.socket:
    """A socket that holds the address but does not listen yet, so that a taken port is found before models load.

    Raises: ServerError if the address cannot be used.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ServerError(f"cannot listen on {host!r}: {error.strerror or error}") from error
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise unusable(host, port, error) from error
    return listener


def listen(listener: socket.socket, host: str) -> None:
    """Raises: ServerError if the address cannot be listened on."""
    try:
        listener.listen(1024)
    except OSError as error:
        raise unusable(host, listener.getsockname()[1], error) from error


def unusable(host: str, port: int, error: OSError) -> ServerError:
    """The error for an address that cannot be listened on."""
    if error.errno == errno.EADDRINUSE:
        return ServerError(f"port {port} of {host} is in use; stop what listens there, or choose another with --port")
    return ServerError(f"cannot listen on port {port} of {host}: {error.strerror or error}")


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches `host`."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def listening_url(listener: socket.socket, host: str) -> str:
    """The URL at which `listener`, bound to `host`, is reached."""
    return f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}"


def uvicorn_server(app: FastAPI, *, drain_s: float) -> uvicorn.Server:
    """A server of `app` that does not touch the program's logging."""
    return uvicorn.Server(
        uvicorn.Config(
            app,
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=math.ceil(drain_s),
        )
    )
