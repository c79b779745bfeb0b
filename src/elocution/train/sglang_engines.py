"""Config -> an engine on SGLang servers, and the servers themselves; whoever syncs it proves its weights."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from elocution.assets import resolve_path
from elocution.config.secrets import read_secret
from elocution.config.tree import RunConfig
from elocution.errors import ConfigError
from elocution.policies.base import Policy
from elocution.rollout.launch import LaunchedServer, RemoteServer, Server
from elocution.rollout.replicas import in_threads
from elocution.rollout.sglang import SglangEngine, check_servers
from elocution.rollout.sglang_client import ServerSettings, SglangServers
from elocution.rollout.sglang_launch import sglang_launch, tts_launch
from elocution.rollout.sglang_settings import SglangSettings
from elocution.rollout.sglang_sync import SglangSync

__all__ = ["SglangParts", "build_sglang"]


@dataclass(frozen=True)
class SglangParts:
    """The engine, and how its servers are brought up, started anew, and ended; those of others are waited for."""

    engine: SglangEngine
    start: Callable[[], None]
    restart: Callable[[], None]
    stop: Callable[[], None]


def build_sglang(config: RunConfig, policy: Policy, run_path: Path) -> SglangParts:
    """Nothing is started yet; `run_path` has the logs of servers that are started.

    Raises: ConfigError if a setting cannot be used.
    """
    server, settings = config.rollout.server, config.rollout.sglang
    if server.sleep:
        raise ConfigError('rollout.server.sleep = true is for rollout.engine = "vllm" only')
    if settings.token_env and not server.urls:
        raise ConfigError(
            "rollout.sglang.token_env needs rollout.server.urls: servers that a run starts are reached from this machine "
            "alone and ask for no key"
        )
    servers = _servers(config, run_path)
    pool = SglangServers(
        ServerSettings(
            tuple(each.url for each in servers),
            max_in_flight=server.max_in_flight,
            timeout_s=server.request_timeout_s,
            max_retries=server.retries,
            api_key=read_secret(settings.token_env, "rollout.sglang.token_env"),
        )
    )

    def revive() -> None:
        in_threads([each.revive for each in servers])

    engine = SglangEngine(
        policy,
        pool,
        SglangSync(pool),
        temperature=config.rollout.temperature,
        settings=SglangSettings(
            legal=settings.legal,
            max_redraws=settings.max_redraws,
            max_mean_gap=settings.max_mean_gap,
            max_recoveries=server.retries,
        ),
        revive=revive,
    )

    def start() -> None:
        try:
            in_threads([each.start for each in servers])
            # The multi-channel fork serves a class of its own, with the codec in it; the rehearsal shows whose weights they are.
            check_servers(pool, type(policy.model).__name__ if policy.num_channels == 1 else None)
        except BaseException:
            stop()
            raise

    def restart() -> None:
        in_threads([each.stop for each in servers])
        in_threads([each.start for each in servers])

    def stop() -> None:
        in_threads([each.stop for each in servers])

    return SglangParts(engine, start, restart, stop)


def _servers(config: RunConfig, run_path: Path) -> list[Server]:
    settings = config.rollout.server
    if settings.urls:
        return [RemoteServer(url) for url in settings.urls]
    model_path, precision = resolve_path(config.model.path).absolute(), config.model.precision
    servers: list[Server] = []
    for index, device in enumerate(settings.devices):
        port = settings.port + index if settings.port else 0
        if config.rollout.sglang.launch == "elocution":
            launch = tts_launch(
                settings,
                model_path=model_path,
                family=config.model.family,
                precision=precision,
                codec=(config.codec.type, str(resolve_path(config.codec.path).absolute())),
                device=device,
                port=port,
            )
        else:
            rank = config.model.lora.rank if config.rollout.sync.strategy == "adapter" else 0
            launch = sglang_launch(
                settings, model_path=model_path, precision=precision, lora_rank=rank, device=device, port=port
            )
        servers.append(LaunchedServer(launch, run_path / "servers" / f"{index}.log"))
    return servers
