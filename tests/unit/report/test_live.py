import http.client
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from elocution.errors import RunDirectoryError, ServerError
from elocution.report.live import describe_state, open_server, respond
from elocution.testing.run_directory import write_sample_run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    write_sample_run(tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture
def port(run: Path) -> Iterator[int]:
    with open_server(run, 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def test_the_page_names_its_clips_and_holds_none(run: Path) -> None:
    page = respond(run, "/")
    assert (page.status, page.kind) == (200, "text/html; charset=utf-8")
    assert b'data-sound="/sound/audio/before/0001.wav"' in page.body
    assert b'id="sound-' not in page.body
    assert f'data-state="{describe_state(run)}"'.encode() in page.body


def test_clips_are_given_as_sound_and_as_picture(run: Path) -> None:
    assert respond(run, "/sound/audio/before/0001.wav").body.startswith(b"fLaC")
    assert respond(run, "/picture/audio/before/0001.wav").body.startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "address",
    [
        *("/sound/config.toml", "/sound/audio/../config.toml", "/sound/audio/%2e%2e/config.toml", "/sound//etc/passwd"),
        *("/config.toml", "/sound/audio/absent.wav", "/sound/"),
    ],
)
def test_nothing_but_clips_of_the_run_is_given_out(run: Path, address: str) -> None:
    assert respond(run, address).status == 404


def test_the_state_changes_with_the_records(run: Path) -> None:
    before = respond(run, "/state").body
    assert respond(run, "/state").body == before
    with (run / "metrics.jsonl").open("a") as stream:
        stream.write('{"step": 7}\n')
    assert respond(run, "/state").body != before


def test_records_that_cannot_be_shown_are_said(run: Path) -> None:
    (run / "rollouts.jsonl").write_text('{"epoch": 1}\n')
    assert respond(run, "/").status == 500
    assert b"not those of an elocution run" in respond(run, "/").body


def get(port: int, host: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", "/state", headers={"Host": host})
    status = connection.getresponse().status
    connection.close()
    return status


def test_pages_of_other_sites_cannot_read_the_run(port: int) -> None:
    assert get(port, f"127.0.0.1:{port}") == 200
    assert get(port, f"localhost:{port}") == 200
    assert get(port, f"evil.example:{port}") == 403


def test_a_port_in_use_and_a_folder_without_a_run_are_refused(run: Path, port: int, tmp_path: Path) -> None:
    with pytest.raises(ServerError, match="choose another --port"):
        open_server(run, port)
    with pytest.raises(RunDirectoryError, match=r"has no config\.toml"):
        open_server(tmp_path, 0)
