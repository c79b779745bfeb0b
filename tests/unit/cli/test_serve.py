"""`elocution serve` on the command line; the server itself is tested elsewhere."""

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from elocution.cli.main import app, main

runner = CliRunner()


def test_the_help_says_how_to_start_to_use_and_to_end_it() -> None:
    shown = " ".join(runner.invoke(app, ["serve", "rewards", "--help"]).output.split())
    for words in ("127.0.0.1:8000", "reward.type=remote", "SIGTERM", "--metrics-port", "--dry-run"):
        assert words in shown


def test_flags_win_over_overrides() -> None:
    flags = ["--port", "9", "--host", "::1", "--model-name", "mine", "--set", "reward_server.port=7"]
    shown = runner.invoke(app, ["serve", "rewards", "--dry-run", *flags]).output
    assert '[reward_server]\nhost = "::1"\nport = 9\n' in shown
    assert 'model_name = "mine"' in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--set", "reward.type=remote", "--set", 'reward.remote.urls=["http://a:1"]'],
            'error: reward.type is "remote", which asks a reward server',
        ),
        (["--set", "reward_server.token_env=NO_SUCH_VARIABLE"], "NO_SUCH_VARIABLE, which is not set or empty"),
        (["--port", "99999"], "reward_server.port = 99999"),
        (["--model-name", "a/b"], "reward_server.model_name = 'a/b'"),
    ],
)
def test_what_cannot_be_served_is_found_before_anything_is_loaded(
    arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["elocution", "serve", "rewards", *arguments])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err


def test_without_the_extra_it_says_how_to_get_it() -> None:
    program = (
        "import sys; sys.modules['uvicorn'] = None; sys.argv = ['elocution', 'serve', 'rewards'];"
        "from elocution.cli.main import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "pip install 'elocution[serve]'" in done.stderr
