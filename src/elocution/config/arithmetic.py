"""The batch arithmetic of a config in words, for `--dry-run`."""

import math

from elocution.assets import resolve_path
from elocution.config.tree import LoraSettings, RunConfig

__all__ = ["describe_batch", "list_absent", "list_doubts"]


def describe_batch(config: RunConfig) -> str:
    """How prompts, groups, optimiser steps and evaluations multiply out."""
    train, rollout = config.train, config.rollout
    completions = train.prompts_per_step * rollout.group_size
    updates = train.minibatches * config.algorithm.epochs
    per_update = math.ceil(train.prompts_per_step / train.minibatches)
    evaluations = 2 + ((train.steps - 1) // config.eval.every if config.eval.every else 0)
    lag = f"        weights handed over every {train.sync_every} steps, completions drawn up to {train.max_lag} steps before their turn"
    return "\n".join(
        [
            f"a step: {train.prompts_per_step} prompts x {rollout.group_size} completions = {completions} completions",
            f"        drawn {rollout.batch_size} at a time in {math.ceil(completions / rollout.batch_size)} batches",
            f"        {train.minibatches} minibatches x {config.algorithm.epochs} epochs = {updates} optimiser steps, "
            f"each over at most {per_update} groups = {per_update * rollout.group_size} completions",
            f"the run: {train.steps} steps = {train.steps * completions} completions, "
            f"{train.steps * updates} optimiser steps",
            *([lag] if train.max_lag else []),
            f"        {evaluations} evaluations x {config.eval.sentences} sentences "
            f"= {evaluations * config.eval.sentences} held-out completions",
        ]
    )


def list_absent(config: RunConfig) -> list[str]:
    """The keys of a run whose file or folder is not there, each with its value."""
    named = {
        "model.path": config.model.path,
        "codec.path": config.codec.path,
        "data.train": config.data.train,
        "data.held_out": config.data.held_out,
        "reward.asr_path": config.reward.asr_path,
        "reward.nll_path": config.reward.nll_path,
        "eval.judge_path": config.eval.judge_path,
    }
    return [f"{key} = {value!r}" for key, value in named.items() if value and not resolve_path(value).exists()]


def list_doubts(config: RunConfig) -> list[str]:
    """What is allowed but seldom meant, each with its reason."""
    doubts = []
    if config.rollout.group_size < 4:
        doubts.append(
            f"rollout.group_size = {config.rollout.group_size}: the deviation of fewer than 4 rewards is a poor "
            "estimate, so advantages are noisy; 8 is the default"
        )
    if config.model.lora.rank == 0 and config.model.lora != LoraSettings():
        doubts.append("model.lora.rank = 0: all weights are trained, and the other keys of model.lora do nothing")
    if config.eval.temperature != config.rollout.temperature:
        doubts.append(
            f"eval.temperature = {config.eval.temperature} and rollout.temperature = {config.rollout.temperature}: "
            "the evaluation measures another distribution than the one that is trained"
        )
    return doubts
