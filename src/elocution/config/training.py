"""The part of the configuration tree that says how a policy is trained. Imports no torch."""

from typing import Literal

from pydantic import Field

from elocution.config.strict import StrictConfig

__all__ = ["ParameterRule", "TrainConfig"]


class ParameterRule(StrictConfig):
    """A learning rate for the parameters whose names fit a pattern."""

    pattern: str
    """Shell-style pattern of parameter names, for example `*norm*`."""
    learning_rate: float = Field(ge=0, le=1)
    """AdamW's learning rate of those parameters; 0 leaves them as they are."""


class TrainConfig(StrictConfig):
    """Steps, optimiser, checkpoints, processes and devices."""

    steps: int = Field(default=26, ge=1)
    """Training steps; each draws new completions."""
    prompts_per_step: int = Field(default=16, ge=1)
    """Prompts of one step."""
    minibatches: int = Field(default=1, ge=1)
    """Optimiser steps in one pass over a step's completions."""
    micro_batch_tokens: int = Field(default=4096, ge=1)
    """Positions computed at once, prompts included; changes memory, not the gradient. Halved once if memory runs out."""
    activation_checkpointing: bool = False
    """Keep one activation for each layer and compute the others again in the backward pass: less memory, more time."""
    learning_rate: float = Field(default=1e-4, gt=0, le=1)
    """AdamW's learning rate of every parameter that no rule names."""
    rules: tuple[ParameterRule, ...] = Field(default=(), strict=False)
    """Learning rates of their own for some parameters; the first rule whose pattern fits a name decides."""
    betas: tuple[float, float] = Field(default=(0.9, 0.95), strict=False)
    """AdamW's decay rates of the first and second moment, each in [0, 1)."""
    weight_decay: float = Field(default=0.0, ge=0, le=1)
    """AdamW's decoupled weight decay."""
    max_grad_norm: float = Field(default=1.0, gt=0)
    """Gradients of a larger norm are scaled down to it."""
    max_skipped_updates: int = Field(default=3, ge=0)
    """Updates with a loss or gradient that is not finite are skipped, and their batches kept; one more stops the run."""
    warmup_steps: int = Field(default=0, ge=0)
    """Steps over which the learning rates rise from 0."""
    lr_schedule: Literal["constant", "linear", "cosine"] = "constant"
    """How the learning rates go on after the warm-up: as they are, or down over the rest of the run."""
    lr_min: float = Field(default=0.0, ge=0, le=1)
    """Where a schedule takes `learning_rate`; the rates of rules fall by the same factor."""
    max_lag: int = Field(default=0, ge=0, le=1000)
    """How many steps old the weights may be that drew a step's completions; 0 draws from those that are trained. More lets
    later steps be drawn, decoded and scored while the learner updates, and needs a correction; see docs/pipeline.md."""
    sync_every: int = Field(default=1, ge=1, le=1000)
    """Steps between the syncs of the sampling weights; above 1 it uses up sync_every - 1 of `max_lag`, and the rest is
    overlap."""
    save_every: int = Field(default=10, ge=1)
    """Steps between checkpoints; the last step always has one."""
    keep_checkpoints: int = Field(default=2, ge=1)
    """Newest checkpoints kept; `best` is always kept."""
    device: str = Field(default="auto", pattern=r"^(auto|cpu|xpu(:\d+)?|cuda(:\d+)?)$")
    """Where policy, learner and the engine `torch` compute: auto, cpu, cuda, cuda:N, …; auto is a GPU if there is one. Of
    several processes on one machine each takes the GPU of its place; see docs/distributed.md."""
    parallel: Literal["ddp", "fsdp"] = "ddp"
    """With several processes: whole weights in each (ddp), or weights and optimiser state in shards over them (fsdp)."""
    wait_s: float = Field(default=7200.0, gt=0, le=604_800)
    """Longest time that a process waits for the others, seconds; an evaluation, which one makes alone, must fit in it."""
