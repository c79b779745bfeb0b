"""An HTTP app that is served within the process, for tests of its clients."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from fastapi import FastAPI

from elocution.serve.sockets import uvicorn_server

__all__ = ["running"]

_START_S = 60.0


@contextmanager
def running(app: FastAPI, *, drain_s: float) -> Iterator[str]:
    """The URL of a server of `app` on a free loopback port; it drains, at most `drain_s` seconds, and ends with the context."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn_server(app, drain_s=drain_s)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            deadline = time.monotonic() + _START_S
            while not server.started:
                if not thread.is_alive() or time.monotonic() > deadline:
                    raise RuntimeError("the server did not start")
                time.sleep(0.01)
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()
