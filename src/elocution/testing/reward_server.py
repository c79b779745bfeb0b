"""A reward server within the process, for tests of its clients."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from elocution.config.tree import RunConfig
from elocution.serve.reward_app import build_app
from elocution.serve.reward_server import reward_service
from elocution.serve.sockets import uvicorn_server

__all__ = ["running_reward_server"]

_START_S = 60.0


@contextmanager
def running_reward_server(config: RunConfig) -> Iterator[str]:
    """The URL of a server of `config` on a free loopback port; it drains and ends with the context."""
    with socket.create_server(("127.0.0.1", 0)) as listener, reward_service(config) as service:
        server = uvicorn_server(build_app(service), drain_s=config.reward_server.drain_s)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        port = listener.getsockname()[1]
        thread.start()
        try:
            deadline = time.monotonic() + _START_S
            while not server.started:
                if not thread.is_alive() or time.monotonic() > deadline:
                    raise RuntimeError("the reward server did not start")
                time.sleep(0.01)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.should_exit = True
            thread.join()
