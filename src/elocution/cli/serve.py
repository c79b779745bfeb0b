"""`elocution serve …`."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from elocution.errors import MissingDependency

if TYPE_CHECKING:
    from elocution.config.tree import RunConfig

__all__ = ["app", "rewards", "tts"]

# Both compare syllables; words of other scripts than Chinese are compared whole. 8000 and 8002 are the recipe's ports.
_RECIPES = {
    "cosyvoice2": ("toned_pinyin_error_rate", "tanh", ("scale=3.0",)),
    "cosyvoice2-power": ("pinyin_error_rate", "power", ("scale=12.0", "power=1.5")),
}

app = typer.Typer(no_args_is_help=True, help="Servers: rewards and speech for trainers on other machines.")


@app.command()
def rewards(
    config: Annotated[
        Path | None, typer.Argument(help="TOML file; omitted, the embedded tiny recipe's reward.", show_default=False)
    ] = None,
    recipe: Annotated[
        Literal["cosyvoice2", "cosyvoice2-power"] | None,
        typer.Option(
            help="The published CosyVoice2 reward, 1 - tanh(3 PER) of pinyin with tones, or its sibling's, exp(-12 PER^1.5) "
            "without them; metrics on port 8002.",
            show_default=False,
        ),
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

    `elocution serve rewards my.toml --recipe cosyvoice2` serves the published recipe's reward to its veRL client.

    SIGTERM or Ctrl-C ends it once the requests under way are answered. More in docs/reward-server.md.
    """
    from elocution.config.load import dump_config, load_config

    flags: dict[str, Any] = {"host": host, "port": port, "metrics_port": metrics_port, "model_name": model_name}
    own = [f"reward_server.{key}={json.dumps(value)}" for key, value in flags.items() if value is not None]
    resolved = load_config(config, [*_recipe_keys(recipe), *(overrides or []), *own])
    if dry_run:
        typer.echo(dump_config(resolved))
        return
    with _naming_the_extra():
        from elocution.serve.reward_server import serve_rewards
    typer.echo("loading and testing the reward")
    serve_rewards(resolved, lambda url: typer.echo(_greeting(url, resolved)))


@app.command()
def tts(
    model: Annotated[
        str, typer.Option(help="Checkpoint folder, a run's checkpoint (runs/R/best), or builtin:NAME.")
    ] = "builtin:tiny-llasa",
    family: Annotated[str, typer.Option(help="Model family.")] = "llasa",
    precision: Annotated[str, typer.Option(help="Precision of matrix products: fp32 or bf16.")] = "fp32",
    codec: Annotated[str, typer.Option(help="Codec type.")] = "tiny",
    codec_path: Annotated[str, typer.Option(help="Codec folder or builtin:NAME.")] = "builtin:tiny-codec",
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="TCP port; 0 takes a free one.")] = 30_000,
    token: Annotated[
        str | None,
        typer.Option(envvar="ELOCUTION_TTS_TOKEN", help="Bearer token that clients must send.", show_default=False),
    ] = None,
    speaker: Annotated[str, typer.Option(help="A voice that the checkpoint was taught: see docs/llasa.md.")] = "",
    audio_dir: Annotated[
        Path | None,
        typer.Option(
            help="Folder below which requests may name recordings; data URIs are always taken.", show_default=False
        ),
    ] = None,
    max_batch_size: Annotated[int, typer.Option(min=1, max=4096, help="Most requests drawn together.")] = 64,
    max_delay_ms: Annotated[
        float, typer.Option(min=0, max=10_000, help="Longest wait of a request for others, milliseconds.")
    ] = 5.0,
) -> None:
    """Speaks over HTTP: SGLang's `/generate` for trainers, OpenAI's `/v1/audio/speech` for listeners.

    Examples:

    `elocution serve tts --model runs/demo/best` serves a trained model on 127.0.0.1:30000.

    A trainer uses it with `--set rollout.engine=sglang --set 'rollout.server.urls=["http://HOST:30000"]'`.

    SIGTERM or Ctrl-C ends it once the requests under way are answered. More in docs/serving.md.
    """
    from transformers.utils.logging import disable_progress_bar

    with _naming_the_extra():
        from elocution.serve.tts_server import TtsSettings, serve_tts
    disable_progress_bar()
    typer.echo("loading the model")
    settings = TtsSettings(
        model=model,
        family=family,
        precision=precision,
        codec=codec,
        codec_path=codec_path,
        host=host,
        port=port,
        token=token or None,
        speaker=speaker,
        audio_dir=audio_dir,
        max_batch_size=max_batch_size,
        max_delay_ms=max_delay_ms,
    )
    serve_tts(settings, lambda url: typer.echo(_tts_greeting(url, has_token=bool(token))))


@contextmanager
def _naming_the_extra() -> Iterator[None]:
    """Raises: MissingDependency instead of an import error of a package that servers need."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("fastapi", "uvicorn", "prometheus_client", "starlette"):
            raise
        raise MissingDependency.naming(str(error.name), "serve") from error


def _tts_greeting(url: str, *, has_token: bool) -> str:
    authorization = ' -H "Authorization: Bearer $ELOCUTION_TTS_TOKEN"' if has_token else ""
    body = json.dumps({"input": "the green house", "voice": "default"})
    return f"serving at {url}\ntry: curl -s{authorization} {url}/v1/audio/speech -d '{body}' -o clip.wav"


def _recipe_keys(recipe: str | None) -> list[str]:
    if recipe is None:
        return []
    fact, utility, shape = _RECIPES[recipe]
    words = (f'fact="{fact}"', f'utility="{utility}"', *shape)
    return [
        'reward.type="composite"',
        'reward.combine="sum"',
        "reward_server.port=8000",
        "reward_server.metrics_port=8002",
        *(f"reward.components.words.{key}" for key in words),
    ]


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
