"""Config -> the engines of a run: one that samples for training, one for evaluation, on the same weights."""

import shutil
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import PreTrainedModel

from elocution.assets import resolve_path
from elocution.config.tree import RunConfig
from elocution.errors import ConfigError
from elocution.policies.base import Policy
from elocution.rollout.base import RolloutEngine
from elocution.rollout.launch import LaunchedServer, RemoteServer, Server
from elocution.rollout.torch_engine import TorchEngine
from elocution.rollout.vllm import VllmEngine
from elocution.rollout.vllm_launch import check_vllm_is_installed, vllm_launch
from elocution.rollout.vllm_servers import COUNTED, VllmServers

__all__ = ["Engines", "build_engines"]


@dataclass(frozen=True)
class Engines:
    """`start` brings servers up, where there are any, and `stop` ends them; both may take a while.

    `counts` says how often servers have had to be asked again since, and why; empty without servers.
    """

    rollout: RolloutEngine
    evaluation: RolloutEngine
    start: Callable[[], None]
    stop: Callable[[], None]
    counts: Callable[[], dict[str, int]]


def build_engines(
    config: RunConfig, policy: Policy, sampling_policy: Policy, save: Callable[[str], None], run_path: Path
) -> Engines:
    """The engines that `config` asks for; nothing is started yet. Training samples
    `sampling_policy`, evaluation `policy`. `save` writes the policy's weights into a folder.

    Raises: ConfigError; MissingDependency if servers are to be started by a Python that lacks them.
    """
    temperatures = config.rollout.temperature, config.eval.temperature
    if config.rollout.engine == "torch":
        engine, evaluation = (
            TorchEngine(sampled, temperature=temperature, batch_size=config.rollout.batch_size)
            for sampled, temperature in zip((sampling_policy, policy), temperatures, strict=True)
        )
        return Engines(engine, evaluation, start=_do_nothing, stop=_do_nothing, counts=dict)
    settings = config.rollout.server
    if config.train.max_lag:
        raise ConfigError(
            f'train.max_lag = {config.train.max_lag} needs rollout.engine = "torch": servers hold one set of weights, which '
            "evaluations need too"
        )
    if not isinstance(policy.model, PreTrainedModel):
        raise ConfigError(f'rollout.engine = "vllm" needs a model of transformers, not {type(policy.model).__name__}')
    servers = VllmServers(
        _vllm_servers(config, run_path),
        vocab_size=policy.model.config.vocab_size,
        timeout_s=settings.request_timeout_s,
        retries=settings.retries,
        max_in_flight=settings.max_in_flight,
    )
    weights_path = (
        Path(settings.weights_dir) / f"elocution-{uuid.uuid4().hex[:12]}"
        if settings.weights_dir
        else run_path / "weights"
    )

    def stop() -> None:
        servers.stop()
        shutil.rmtree(weights_path, ignore_errors=True)

    sampler, evaluator = (
        VllmEngine(policy, servers, temperature=each, save=save, weights_path=weights_path, sleeps=settings.sleep)
        for each in temperatures
    )
    return Engines(
        sampler,
        evaluator,
        start=servers.start,
        stop=stop,
        counts=lambda: {name: servers.counts[name] for name in COUNTED},
    )


def _vllm_servers(config: RunConfig, run_path: Path) -> list[Server]:
    settings = config.rollout.server
    if settings.urls:
        return [RemoteServer(url) for url in settings.urls]
    check_vllm_is_installed(settings.python)
    return [
        LaunchedServer(
            vllm_launch(
                settings,
                model_path=resolve_path(config.model.path).absolute(),
                precision=config.model.precision,
                lora_rank=config.model.lora.rank,
                on_cpu=not torch.cuda.is_available(),
                device=device,
                port=settings.port + index if settings.port else 0,
            ),
            run_path / "servers" / f"{index}.log",
        )
        for index, device in enumerate(settings.devices)
    ]


def _do_nothing() -> None: ...
