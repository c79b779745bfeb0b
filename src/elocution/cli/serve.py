"""`elocution serve …`."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from elocution.errors import MissingDependency

if TYPE_CHECKING:
    from elocution.config.tree import RunConfig

__all__ = ["app", "rewards"]

app = typer.Typer(no_args_is_help=True, help="Servers: rewards for trainers on other machines.")


@app.callback()
def _group() -> None:
    """Keeps `rewards` a command of its own while it is the only one."""


@app.command()
def rewards(
    config: Annotated[
        Path | None, typer.Argument(help="TOML file; omitted, the embedded tiny recipe's reward.", show_default=False)
    ] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on. Default: 127.0.0.1.")] = None,
    port: Annotated[int | None, typer.Option(help="TCP port; 0 takes a free one. Default: 8000.")] = None,
    metrics_port: Annotated[
        int | None, typer.Option(help="Prometheus metrics on a port of their own. Default: /metrics of the main port.")
    ] = None,
    model_name: Annotated[
        str | None,
        typer.Option(help="Model that takes codes; NAME_wav takes waveforms. Default: token2wav_asr."),
    ] = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Override one value; repeatable.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the resolved config; load no model.")] = False,
) -> None:
    """Scores speech over HTTP (KServe v2), with the reward and codec of a config.

    Examples:

    `elocution serve rewards` serves the tiny recipe's reward on 127.0.0.1:8000.

    `elocution serve rewards my.toml --host 0.0.0.0 --set reward_server.token_env=REWARD_TOKEN`

    A trainer uses it with `--set reward.type=remote --set 'reward.remote.urls=["http://HOST:8000"]'`.

    SIGTERM or Ctrl-C ends it once the requests under way are answered. More in docs/reward-server.md.
    """
    from elocution.config.load import dump_config, load_config

    flags: dict[str, Any] = {"host": host, "port": port, "metrics_port": metrics_port, "model_name": model_name}
    own = [f"reward_server.{key}={json.dumps(value)}" for key, value in flags.items() if value is not None]
    resolved = load_config(config, [*(overrides or []), *own])
    if dry_run:
        typer.echo(dump_config(resolved))
        return
    try:
        from elocution.serve.reward_server import serve_rewards
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("fastapi", "uvicorn", "prometheus_client", "starlette"):
            raise
        raise MissingDependency.naming(str(error.name), "serve") from error
    typer.echo("loading and testing the reward")
    serve_rewards(resolved, lambda url: typer.echo(_greeting(url, resolved)))


def _greeting(url: str, config: "RunConfig") -> str:
    name = config.reward_server.model_name
    body = {
        "inputs": [
            {"name": "TOKENS", "datatype": "INT32", "shape": [1, 3], "data": [[0, 1, 2]]},
            {"name": "TOKEN_LENS", "datatype": "INT32", "shape": [1, 1], "data": [[3]]},
            {"name": "GT_TEXT", "datatype": "BYTES", "shape": [1, 1], "data": [["the green house"]]},
        ]
    }
    variable = config.reward_server.token_env
    authorization = f' -H "Authorization: Bearer ${variable}"' if variable else ""
    return (
        f"serving {name} (codes) and {name}_wav (waveforms) at {url}\n"
        f"try: curl -s{authorization} {url}/v2/models/{name}/infer -d '{json.dumps(body)}'"
    )
