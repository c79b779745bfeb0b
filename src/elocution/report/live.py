"""The page of a run that goes on, over HTTP on this machine alone: made from the files in the run directory at each request."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

from elocution.audio import read_audio
from elocution.errors import DataError, RunDirectoryError, ServerError
from elocution.report.media import LinkedClips, encode_flac
from elocution.report.page import render_page
from elocution.report.run_reader import RECORDS, read_run
from elocution.report.spectrogram import draw_spectrogram
from elocution.types import Audio

__all__ = ["Answer", "describe_state", "open_server", "respond"]

_HOST = "127.0.0.1"
_ENCODERS: dict[str, tuple[str, Callable[[Audio], bytes]]] = {
    "sound": ("audio/flac", encode_flac),
    "picture": ("image/png", draw_spectrogram),
}


@dataclass(frozen=True, slots=True)
class Answer:
    """What a browser gets."""

    status: int
    kind: str
    body: bytes


def describe_state(run: Path) -> str:
    """A text that changes whenever the run's records or its best checkpoint do."""
    sizes = [(path.stat().st_size if path.is_file() else -1) for path in (run / name for name in RECORDS)]
    return hashlib.sha256(repr((sizes, (run / "best").resolve())).encode()).hexdigest()[:16]


def respond(run: Path, address: str) -> Answer:
    """The answer to a GET of `address`: the page, its state, or a clip of the run as `/sound/NAME` or `/picture/NAME`."""
    path = unquote(address.partition("?")[0])
    if path == "/":
        state = describe_state(run)  # before the page: what is written meanwhile is news
        try:
            page = render_page(run, LinkedClips(run), state=state)
        except RunDirectoryError as error:
            return _failed(500, str(error))
        return Answer(200, "text/html; charset=utf-8", page.encode())
    if path == "/state":
        return Answer(200, "text/plain; charset=utf-8", describe_state(run).encode())
    kind, _, name = path.lstrip("/").partition("/")
    if kind not in _ENCODERS:
        return _failed(404, "there is no such page")
    clip, folder = (run / name).resolve(), (run / "audio").resolve()
    if not clip.is_relative_to(folder):
        return _failed(404, "only clips of the run are given out")
    content, encode = _ENCODERS[kind]
    try:
        return Answer(200, content, encode(read_audio(clip)))
    except DataError as error:
        return _failed(404, str(error))


def _failed(status: int, reason: str) -> Answer:
    return Answer(status, "text/plain; charset=utf-8", reason.encode())


def open_server(run: Path, port: int) -> ThreadingHTTPServer:
    """A server of the run's page on the loopback address, which listens and is yet to serve; port 0 takes a free one.

    Raises: RunDirectoryError if `run` is no run directory; ServerError if the port is taken.
    """
    read_run(run)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            # Another site can have a name that leads here: its pages must not read the run.
            if self.headers.get("Host", "").rpartition(":")[0] not in (_HOST, "localhost"):
                answer = _failed(403, f"open http://{_HOST}:{self.server.server_port}")  # type: ignore[attr-defined]
            else:
                answer = respond(run, self.path)
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.kind)
            self.send_header("Content-Length", str(len(answer.body)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(answer.body)

        def log_message(self, format: str, *args: object) -> None:
            """A page that asks every two seconds is no news."""

    try:
        return ThreadingHTTPServer((_HOST, port), Handler)
    except OSError as error:
        raise ServerError(f"cannot listen on {_HOST}:{port}: {error.strerror}; choose another --port") from error
