"""A TTS server within the process, for tests of its clients."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from elocution.serve.sockets import uvicorn_server
from elocution.serve.tts_app import TtsService, build_app

__all__ = ["running_tts_server"]

_START_S = 60.0


@contextmanager
def running_tts_server(service: TtsService) -> Iterator[str]:
    """The URL of a server of `service` on a free loopback port; it ends with the context."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn_server(build_app(service), drain_s=10)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            deadline = time.monotonic() + _START_S
            while not server.started:
                if not thread.is_alive() or time.monotonic() > deadline:
                    raise RuntimeError("the TTS server did not start")
                time.sleep(0.01)
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()
