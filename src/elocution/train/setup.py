"""Config -> the parts of a run, loaded and checked before anything is written."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import nn
from transformers import PreTrainedModel

from elocution.assets import resolve_path
from elocution.codecs import load_codec
from elocution.codecs.base import Codec
from elocution.config.tree import ModelConfig, RunConfig
from elocution.data.prompts import PromptSet, check_split, load_prompts
from elocution.data.voice_cache import open_voice_cache
from elocution.data.voices import VoiceReader
from elocution.errors import ConfigError
from elocution.grpo.losses import LossSettings
from elocution.grpo.schedules import scheduled
from elocution.grpo.weights import parse_channel_weights
from elocution.policies import load_policy
from elocution.policies.base import Policy, Reference
from elocution.policies.lora import (
    BasePolicy,
    adapter_parameters,
    add_adapter,
    describe_base,
    is_adapter,
    recorded_base,
    save_adapter,
)
from elocution.rollout.codec_fit import check_codec
from elocution.rollout.speak import Speaker
from elocution.train.engines import Engines, build_engines
from elocution.train.learner import Learner, LearnerSettings
from elocution.train.mirror import mirror_of
from elocution.train.optim import parameter_groups
from elocution.train.sharding import ShardedModels
from elocution.train.world import ALONE, World
from elocution.types import Utterance

_CPU = torch.device("cpu")

__all__ = ["Parts", "build_parts", "learner_settings", "rollout_temperature"]


@dataclass(frozen=True)
class Parts:
    """All that a run needs but the scorers, which live in other processes.

    `engines.rollout` and `speaker` sample `sampling_policy`: the policy itself, or a copy if completions may be drawn from older
    weights than are trained, or these are in shards. `whole_policy` is evaluated and saved: the policy itself, or a copy
    if that is in shards.
    """

    policy: Policy
    sampling_policy: Policy
    whole_policy: Policy
    codec: Codec
    engines: Engines
    speaker: Speaker
    evaluation_speaker: Speaker
    optimizer: torch.optim.Optimizer
    save_model: Callable[[str], None]
    load_policy: Callable[[Path], Policy]
    learner: Learner
    train_prompts: PromptSet
    held_out: tuple[Utterance, ...]


def build_parts(
    config: RunConfig,
    model_path: Path | None = None,
    *,
    run_path: Path = Path(),
    device: torch.device = _CPU,
    world: World = ALONE,
) -> Parts:
    """Loads policy, reference, codec and prompts; `model_path` overrides the policy's weights when resuming.

    Nothing is written into the run yet; once they are started, engines may use folders of their own in `run_path`. With
    `train.parallel = "fsdp"` and several processes in `world`, policy and reference are left in shards.

    Raises: ConfigError if prompts do not suffice; DataError if they overlap; the loaders' own errors.
    """
    models = _load_models(config.model, model_path, config.seed, device)
    policy = models.policy
    if config.train.activation_checkpointing:
        _recompute_activations(policy.model)
    load = partial(load_codec, config.codec.type, resolve_path(config.codec.path))
    codec = load()
    check_codec(codec, policy, name=config.codec.path)
    build_speaker = partial(
        Speaker,
        codec=codec,
        max_codes_per_char=config.rollout.max_codes_per_char,
        min_codes=config.rollout.min_codes,
        keep_truncated=config.algorithm.truncated == "keep",
    )
    groups = parameter_groups(models.trained, config.train)  # from here on it is known which weights are trained
    in_shards = config.train.parallel == "fsdp" and world.size > 1
    sampling_policy = mirror_of(policy) if config.train.max_lag or in_shards else policy
    whole_policy = mirror_of(policy) if in_shards else policy
    save = partial(models.save, whole_policy)
    engines = build_engines(config, whole_policy, sampling_policy, models.trained, run_path)
    shards = None
    if in_shards:
        shards = _shard(models)
        parameters = dict(policy.model.named_parameters())
        groups = parameter_groups({name: parameters[name] for name in models.trained}, config.train)
    optimizer = torch.optim.AdamW(groups, betas=config.train.betas, weight_decay=config.train.weight_decay, fused=True)
    speaker = build_speaker(sampling_policy, engines.rollout)
    voices = VoiceReader(load, open_voice_cache(config.data.voice_cache, config.codec))
    train, held_out = (
        load_prompts(
            resolve_path(path),
            languages=config.data.languages,
            on_bad_row=config.data.on_bad_row,
            check_text=speaker.check,
            voices=voices,
        )
        for path in (config.data.train, config.data.held_out)
    )
    check_split(train, held_out, num_train=config.train.prompts_per_step, num_held_out=config.eval.sentences)
    settings = learner_settings(config, step=1, num_channels=policy.num_channels)
    return Parts(
        policy=policy,
        sampling_policy=sampling_policy,
        whole_policy=whole_policy,
        codec=codec,
        engines=engines,
        speaker=speaker,
        evaluation_speaker=build_speaker(whole_policy, engines.evaluation),
        optimizer=optimizer,
        save_model=save,
        load_policy=models.load,
        learner=Learner(policy, models.reference, optimizer, settings, world=world, shards=shards),
        train_prompts=train,
        held_out=held_out.utterances[: config.eval.sentences],
    )


def learner_settings(config: RunConfig, *, step: int, num_channels: int) -> LearnerSettings:
    """What `config` asks of the updates of `step`, schedules applied.

    Raises: ConfigError if the channel weights do not fit the policy.
    """
    algorithm, total = config.algorithm, config.train.steps
    try:
        channels = parse_channel_weights(algorithm.channel_weights, num_channels) if algorithm.channel_weights else None
    except ValueError as error:
        raise ConfigError(f"algorithm.channel_weights: {error}") from error
    return LearnerSettings(
        temperature=rollout_temperature(config, step),
        loss=algorithm.loss,
        bounds=LossSettings(
            clip_low=scheduled(algorithm.clip_low, algorithm.clip_low_end, step, total, algorithm.schedule),
            clip_high=scheduled(algorithm.clip_high, algorithm.clip_high_end, step, total, algorithm.schedule),
            dual_clip=algorithm.dual_clip or None,
            tau_positive=algorithm.tau_positive,
            tau_negative=algorithm.tau_negative,
        ),
        aggregation=algorithm.aggregation,
        channel_weights=channels,
        fixed_length=algorithm.fixed_length or None,
        whole_stops=algorithm.whole_stops,
        kl_coef=algorithm.kl_coef,
        kl_estimate=algorithm.kl_estimate,
        entropy_coef=algorithm.entropy_coef,
        correction=None if algorithm.correction == "none" else algorithm.correction,
        correction_low=algorithm.correction_low,
        correction_high=algorithm.correction_high,
        max_grad_norm=config.train.max_grad_norm,
        activation_checkpointing=config.train.activation_checkpointing,
    )


def rollout_temperature(config: RunConfig, step: int) -> float:
    """The temperature at which `step` samples and learns."""
    rollout = config.rollout
    return scheduled(
        rollout.temperature, rollout.temperature_end, step, config.train.steps, rollout.temperature_schedule
    )


def _recompute_activations(model: nn.Module) -> None:
    """Keeps one activation for each layer in the learner and computes the others again in the backward pass.

    Raises: ConfigError if the model cannot, or drops activations out, which would make ratios differ from 1.
    """
    if not isinstance(model, PreTrainedModel) or not model.supports_gradient_checkpointing:
        raise ConfigError(
            f"train.activation_checkpointing = true, but {type(model).__name__} cannot recompute activations"
        )
    rates = {key: value for key, value in model.config.to_dict().items() if "drop" in key and value}
    if rates:
        raise ConfigError(f"train.activation_checkpointing = true needs a model without dropout, this one has {rates}")
    model.activation_checkpointing_enable()


def _shard(models: "_Models") -> ShardedModels:
    frozen = () if models.frozen is None else (models.frozen,)
    return ShardedModels(models.policy.model, *frozen)


@dataclass(frozen=True)
class _Models:
    """The policy, what KL is measured against, the parameters to train by name, and how to save and load a policy.

    `frozen` is the reference's own model, None if that is the policy's.
    """

    policy: Policy
    reference: Reference
    frozen: nn.Module | None
    trained: Mapping[str, nn.Parameter]
    save: Callable[[Policy, str], None]
    load: Callable[[Path], Policy]


def _load_models(config: ModelConfig, model_path: Path | None, seed: int, device: torch.device) -> _Models:
    base_path = resolve_path(config.path)
    if is_adapter(base_path):
        raise ConfigError(
            f"model.path = {config.path!r} is an adapter; write it merged into its base first, in Python: "
            f"load_policy({config.family!r}, Path({config.path!r})).save_pretrained('merged')"
        )
    load = partial(
        load_policy,
        config.family,
        precision=config.precision,
        speaker=config.speaker,
        language_tags=config.language_tags,
        moss=config.moss,
    )
    policy = load(model_path or base_path)
    if not config.lora.rank:
        reference = load(base_path)
        reference.model.requires_grad_(False)
        for model in (policy.model, reference.model):
            model.to(device)
        return _Models(policy, reference, reference.model, dict(policy.model.named_parameters()), _save_whole, load)
    if model_path is None:
        add_adapter(policy.model, config.lora, targets=policy.lora_targets, seed=seed, base_path=config.path)
    policy.model.to(device)
    # `load_policy` has compared the base of an adapter with its record already.
    base = recorded_base(model_path) if model_path else describe_base(config.path)

    def save(policy: Policy, path: str) -> None:
        save_adapter(policy.model, path, base=base)

    return _Models(policy, BasePolicy(policy), None, adapter_parameters(policy.model), save, load)


def _save_whole(policy: Policy, path: str) -> None:
    policy.save_pretrained(path)
