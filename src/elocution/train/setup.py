"""Config -> the parts of a run, loaded and checked before anything is written."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from elocution.assets import resolve_path
from elocution.codecs import load_codec
from elocution.codecs.base import Codec
from elocution.config.tree import RunConfig
from elocution.data.prompts import PromptSet, load_prompts
from elocution.errors import ConfigError
from elocution.policies import load_policy
from elocution.policies.base import Policy, PolicyBatch
from elocution.rollout.speak import Speaker
from elocution.rollout.torch_engine import TorchEngine
from elocution.train.learner import Learner, LearnerSettings
from elocution.train.optim import parameter_groups
from elocution.types import Utterance

__all__ = ["Parts", "build_parts"]


@dataclass(frozen=True)
class Parts:
    """All that a run needs but the scorers, which live in other processes."""

    policy: Policy
    codec: Codec
    engine: TorchEngine
    speaker: Speaker
    evaluation_engine: TorchEngine
    evaluation_speaker: Speaker
    optimizer: torch.optim.Optimizer
    learner: Learner
    train_prompts: PromptSet
    held_out: tuple[Utterance, ...]


def build_parts(config: RunConfig, model_path: Path | None = None) -> Parts:
    """Loads policy, reference, codec and prompts; `model_path` overrides the policy's weights when resuming.

    Raises: ConfigError if prompts overlap or do not suffice; the loaders' own errors.
    """
    base_path = resolve_path(config.model.path)
    precision = config.model.precision
    policy = load_policy(config.model.family, model_path or base_path, precision=precision)
    reference = load_policy(config.model.family, base_path, precision=precision)
    reference.model.requires_grad_(False)
    if config.train.activation_checkpointing:
        _recompute_activations(policy.model)
    codec = load_codec(config.codec.type, resolve_path(config.codec.path))
    train, held_out = (
        load_prompts(
            resolve_path(path),
            languages=config.data.languages,
            on_bad_row=config.data.on_bad_row,
            check_text=policy.check_text,
        )
        for path in (config.data.train, config.data.held_out)
    )
    _check_prompts(config, train.utterances, held_out.utterances)
    build_speaker = partial(
        Speaker,
        policy,
        codec=codec,
        max_codes_per_char=config.rollout.max_codes_per_char,
        min_codes=config.rollout.min_codes,
    )
    engine = TorchEngine(policy, temperature=config.rollout.temperature, batch_size=config.rollout.batch_size)
    evaluation_engine = TorchEngine(policy, temperature=config.eval.temperature, batch_size=config.rollout.batch_size)
    optimizer = torch.optim.AdamW(
        parameter_groups(dict(policy.model.named_parameters()), config.train),
        betas=config.train.betas,
        weight_decay=config.train.weight_decay,
    )

    def reference_logprobs(batch: PolicyBatch) -> Tensor:
        return reference.logprobs(batch, temperature=config.rollout.temperature)[0]

    settings = LearnerSettings(
        temperature=config.rollout.temperature,
        clip_low=config.algorithm.clip_low,
        clip_high=config.algorithm.clip_high,
        kl_coef=config.algorithm.kl_coef,
        max_grad_norm=config.train.max_grad_norm,
        activation_checkpointing=config.train.activation_checkpointing,
    )
    return Parts(
        policy=policy,
        codec=codec,
        engine=engine,
        speaker=build_speaker(engine),
        evaluation_engine=evaluation_engine,
        evaluation_speaker=build_speaker(evaluation_engine),
        optimizer=optimizer,
        learner=Learner(policy, reference_logprobs, optimizer, settings),
        train_prompts=train,
        held_out=held_out.utterances[: config.eval.sentences],
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


def _check_prompts(config: RunConfig, train: Sequence[Utterance], held_out: Sequence[Utterance]) -> None:
    if len(train) < config.train.prompts_per_step:
        raise ConfigError(
            f"train.prompts_per_step is {config.train.prompts_per_step}, "
            f"but {config.data.train} has only {len(train)} usable prompts"
        )
    if len(held_out) < config.eval.sentences:
        raise ConfigError(
            f"eval.sentences is {config.eval.sentences}, but {config.data.held_out} has only {len(held_out)}"
        )
    shared = {utterance.text for utterance in train} & {utterance.text for utterance in held_out}
    if shared:
        raise ConfigError(
            f"{len(shared)} held-out sentences are also training prompts, for example {sorted(shared)[0]!r}; "
            "remove them from one of the two files"
        )
