"""Parameter groups and learning rates."""

from typing import Any

import torch
from torch import nn

from elocution.config.tree import TrainConfig

__all__ = ["parameter_groups", "set_learning_rates", "warmup_factor"]


def parameter_groups(model: nn.Module, config: TrainConfig) -> list[dict[str, Any]]:
    """Matrices at `learning_rate`, vectors (normalisation gains) at `gain_learning_rate`; `base_lr` keeps the rate."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    kinds = (
        ([parameter for parameter in trained if parameter.ndim > 1], config.learning_rate),
        ([parameter for parameter in trained if parameter.ndim <= 1], config.gain_learning_rate),
    )
    return [{"params": parameters, "lr": rate, "base_lr": rate} for parameters, rate in kinds if parameters]


def warmup_factor(step: int, warmup_steps: int) -> float:
    """Linear rise to 1 over `warmup_steps`; steps count from 1."""
    return min(1.0, step / warmup_steps) if warmup_steps else 1.0


def set_learning_rates(optimizer: torch.optim.Optimizer, factor: float) -> None:
    """Sets every group to `factor` times its base rate, in place."""
    for group in optimizer.param_groups:
        group["lr"] = group["base_lr"] * factor
