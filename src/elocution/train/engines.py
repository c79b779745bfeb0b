"""Config -> the engines of a run: one that samples for training, one for evaluation, on the same weights."""

import hashlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from transformers import PreTrainedModel

from elocution.assets import resolve_path
from elocution.config.tree import RunConfig
from elocution.errors import ConfigError
from elocution.policies.base import Policy
from elocution.rollout.base import RolloutEngine
from elocution.rollout.launch import LaunchedServer, RemoteServer, Server
from elocution.rollout.sync.base import GreedyDecoder, TensorLoader
from elocution.rollout.sync.build import SyncableEngine, build_synced_engine
from elocution.rollout.sync.shared import EngineUser, SharedEngine
from elocution.rollout.torch_engine import TorchEngine
from elocution.rollout.vllm import VllmEngine
from elocution.rollout.vllm_launch import check_vllm_is_installed, vllm_launch
from elocution.rollout.vllm_servers import COUNTED, VllmServers
from elocution.train.sglang_engines import build_sglang
from elocution.types import Utterance

__all__ = ["Engines", "build_engines"]


@dataclass(frozen=True)
class Engines:
    """`start` brings servers up, where there are any, and `stop` ends them; both may take a while.

    `start` is given the training prompts, of which it makes what servers are proven by. `metrics` has, by the names of
    metrics.jsonl, how often servers had to be asked again so far, and the figures of the last sync; empty without servers.
    """

    rollout: RolloutEngine
    evaluation: RolloutEngine
    start: Callable[[Sequence[Utterance]], None]
    stop: Callable[[], None]
    metrics: Callable[[], dict[str, float]]


def build_engines(
    config: RunConfig,
    policy: Policy,
    sampling_policy: Policy,
    trained: Mapping[str, nn.Parameter],
    run_path: Path,
) -> Engines:
    """The engines that `config` asks for; nothing is started yet, and nothing written. Training samples
    `sampling_policy`, evaluation `policy`, of which the parameters `trained` change.

    Raises: ConfigError; MissingDependency if servers are to be started by a Python that lacks them.
    """
    temperatures = config.rollout.temperature, config.eval.temperature
    if config.rollout.engine == "torch":
        engine, evaluation = (
            _torch_engine(config, sampled, temperature)
            for sampled, temperature in zip((sampling_policy, policy), temperatures, strict=True)
        )
        return Engines(engine, evaluation, start=lambda utterances: None, stop=lambda: None, metrics=dict)
    if config.rollout.engine == "sglang":
        return _sglang_engines(config, policy, sampling_policy, trained, run_path)
    return _vllm_engines(config, policy, sampling_policy, trained, run_path)


def _torch_engine(config: RunConfig, policy: Policy, temperature: float) -> TorchEngine:
    rollout = config.rollout
    return TorchEngine(policy, temperature=temperature, batch_size=rollout.batch_size, compiled=rollout.compile)


def _vllm_engines(
    config: RunConfig, policy: Policy, sampling_policy: Policy, trained: Mapping[str, nn.Parameter], run_path: Path
) -> Engines:
    settings = config.rollout.server
    if policy.num_channels != 1:
        raise ConfigError(
            f'rollout.engine = "vllm": the policy draws {policy.num_channels} ids at a position, a vLLM server draws one; set '
            'rollout.engine = "torch" or "sglang"'
        )
    if not isinstance(policy.model, PreTrainedModel):
        raise ConfigError(f'rollout.engine = "vllm" needs a model of transformers, not {type(policy.model).__name__}')
    head = policy.model.get_output_embeddings()
    if isinstance(head, nn.Linear) and head.bias is not None:
        raise ConfigError(
            f"{config.model.path} has a bias in its output layer, which vLLM drops without a word: it would draw from another "
            'policy. Use rollout.engine = "torch", or train a checkpoint without it: docs/cosyvoice2.md'
        )
    servers = VllmServers(
        _vllm_servers(config, run_path),
        vocab_size=policy.model.config.vocab_size,
        timeout_s=settings.request_timeout_s,
        retries=settings.retries,
        max_in_flight=settings.max_in_flight,
    )
    engine = VllmEngine(sampling_policy, servers, temperature=config.rollout.temperature, sleeps=settings.sleep)
    return _synced_engines(
        config,
        _Served(
            engine,
            start=servers.start,
            restart=servers.restart,
            stop=servers.stop,
            metrics=lambda: {f"engine/{name}": servers.counts[name] for name in COUNTED},
            untie=True,  # vLLM reloads tied weights by each name, and keeps old ones under a name that is not there
        ),
        policy,
        sampling_policy,
        trained,
        run_path,
    )


def _sglang_engines(
    config: RunConfig, policy: Policy, sampling_policy: Policy, trained: Mapping[str, nn.Parameter], run_path: Path
) -> Engines:
    parts = build_sglang(config, sampling_policy, run_path)
    engine = parts.engine
    # The multi-channel fork cannot score.
    decoder = engine if sampling_policy.num_channels > 1 else None
    served = _Served(
        engine,
        parts.start,
        parts.restart,
        parts.stop,
        engine.metrics,
        untie=False,
        decoder=decoder,
        receiver=engine,
    )
    return _synced_engines(config, served, policy, sampling_policy, trained, run_path)


@dataclass(frozen=True)
class _Served:
    """An engine on servers, and what can be done with these; `decoder` is the engine if it cannot score, `receiver` if it can
    be sent tensors."""

    engine: SyncableEngine
    start: Callable[[], None]
    restart: Callable[[], None]
    stop: Callable[[], None]
    metrics: Callable[[], dict[str, float]]
    untie: bool
    decoder: GreedyDecoder | None = None
    receiver: TensorLoader | None = None


def _synced_engines(
    config: RunConfig,
    served: _Served,
    policy: Policy,
    sampling_policy: Policy,
    trained: Mapping[str, nn.Parameter],
    run_path: Path,
) -> Engines:
    """Engines on servers, which are proven to have each version of the weights of `sampling_policy`.

    Where that is the learner's own policy, evaluation draws from the servers too. Where it is a copy that may be older, the
    servers are busy with it while the learner evaluates, which is then done in this process.
    """
    shared, root = SharedEngine(), _sync_folder(config.rollout.server.weights_dir, run_path)
    sampled = dict(sampling_policy.model.named_parameters())

    def start(utterances: Sequence[Utterance]) -> None:
        served.start()
        synced = build_synced_engine(
            served.engine,
            sampling_policy,
            config.rollout.sync,
            base=config.model.path,
            precision=config.model.precision,
            trained={name: sampled[name] for name, each in trained.items() if each.requires_grad},
            utterances=utterances,
            root=root,
            seed=config.seed,
            untie=served.untie,
            decoder=served.decoder,
            receiver=served.receiver,
            restart=served.restart,
        )
        shared.attach(synced)

    def stop() -> None:
        served.stop()
        if not shared.is_quarantined:  # what could not be proven is kept for whoever looks for the cause
            shutil.rmtree(root, ignore_errors=True)

    temperature = config.eval.temperature
    return Engines(
        EngineUser(shared, temperature=config.rollout.temperature),
        EngineUser(shared, temperature=temperature)
        if sampling_policy is policy
        else _torch_engine(config, policy, temperature),
        start=start,
        stop=stop,
        metrics=lambda: served.metrics() | shared.metrics(),
    )


def _sync_folder(weights_dir: str, run_path: Path) -> Path:
    """Where versions are written: the same for a run and for what resumes it, so that nothing stays of a killed one."""
    if not weights_dir:
        return run_path / "sync"
    return Path(weights_dir) / f"elocution-{hashlib.sha256(str(run_path.resolve()).encode()).hexdigest()[:12]}"


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
                lora_rank=config.model.lora.rank if config.rollout.sync.strategy == "adapter" else 0,
                on_cpu=not torch.cuda.is_available(),
                device=device,
                port=settings.port + index if settings.port else 0,
            ),
            run_path / "servers" / f"{index}.log",
        )
        for index, device in enumerate(settings.devices)
    ]
