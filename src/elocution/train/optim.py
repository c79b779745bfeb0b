"""Parameter groups and learning rates."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import nn

from elocution.config.tree import TrainConfig
from elocution.errors import ConfigError
from elocution.grpo.schedules import scheduled

__all__ = ["parameter_groups", "rate_factor", "set_learning_rates"]


def parameter_groups(parameters: Mapping[str, nn.Parameter], config: TrainConfig) -> list[dict[str, Any]]:
    """One group for each rule of `config` and one for the rest; `base_lr` keeps the rate that a schedule scales.

    Parameters with rate 0 stop requiring a gradient.

    Raises: ConfigError if a rule fits no parameter, or nothing is left to train.
    """
    rates = [(rule.pattern, rule.learning_rate) for rule in config.rules] + [("*", config.learning_rate)]
    chosen: list[list[nn.Parameter]] = [[] for _ in rates]
    for name, parameter in parameters.items():
        chosen[next(index for index, (pattern, _) in enumerate(rates) if fnmatchcase(name, pattern))].append(parameter)
    for (pattern, _), members in zip(rates[:-1], chosen[:-1], strict=True):
        if not members:
            raise ConfigError(
                f"the rule train.rules.pattern = {pattern!r} decides for no parameter that is trained; these have names like {next(iter(parameters))!r}"
            )
    groups = []
    for (_, rate), members in zip(rates, chosen, strict=True):
        for parameter in members:
            parameter.requires_grad_(rate > 0)
        if rate > 0 and members:
            groups.append({"params": members, "lr": rate, "base_lr": rate})
    if not groups:
        raise ConfigError("every parameter has learning rate 0: there is nothing to train")
    return groups


def rate_factor(step: int, config: TrainConfig) -> float:
    """What every learning rate is multiplied by in `step`, counted from 1: up to 1 over `warmup_steps`, then on from 1 to
    lr_min / learning_rate as `lr_schedule` says. That would be reached one step after the last, so every step moves.

    Source: after the warm-up as transformers' `get_linear_schedule_with_warmup` and `get_cosine_schedule_with_warmup`.
    """
    warmup = config.warmup_steps
    if step < warmup:
        return step / warmup
    floor = config.lr_min / config.learning_rate
    return scheduled(1.0, floor, max(1, step - warmup), config.steps - warmup + 1, config.lr_schedule)


def set_learning_rates(optimizer: torch.optim.Optimizer, factor: float) -> None:
    """Sets every group to `factor` times its base rate, in place."""
    for group in optimizer.param_groups:
        group["lr"] = group["base_lr"] * factor
