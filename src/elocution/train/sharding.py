"""Weights, gradients and optimiser state in shards over the processes, through torch's `fully_shard` (FSDP2).

The files and the engines know whole tensors only: here is how these are made from shards, and shards from them.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from transformers import PreTrainedModel

from elocution.errors import ConfigError

__all__ = ["ShardedModels", "local_part", "optimizer_state", "restore_optimizer", "whole"]

T = TypeVar("T")


class ShardedModels(nn.Module):
    """Shards `models` in place, layer by layer. Within a call of this module their weights can be used as if whole.

    Every process must make the same number of calls. Gradients are summed over the processes in the backward pass.

    Raises: ConfigError if a model does not say what its layers are.
    """

    def __init__(self, *models: nn.Module) -> None:
        super().__init__()
        self.models = nn.ModuleList(models)
        for model in models:
            for layer in _layers(model):
                fully_shard(layer)
        fully_shard(self)
        for module in self.modules():
            if isinstance(module, FSDPModule):
                # The loss is divided by the counts of the whole step already: gradients add up, and are not averaged.
                # Any factor but the number of processes is another operation than a sum, which gloo lacks, unless forced.
                module.set_gradient_divide_factor(1.0)
                module.set_force_sum_reduction_for_comms(True)

    def forward(self, compute: Callable[[], T]) -> T:
        """`compute()`, whose result must hold its tensors in tuples, lists or dicts, for gradients to find their way."""
        return compute()


def whole(tensor: Tensor) -> Tensor:
    """The whole tensor of which `tensor` is a shard; else itself. All processes must ask for it."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def local_part(tensor: Tensor) -> Tensor:
    """What of `tensor` this process has."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def optimizer_state(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Its state as one process would have it, on the CPU. All processes must ask for it."""
    state = optimizer.state_dict()
    states = {index: {name: _on_cpu(value) for name, value in own.items()} for index, own in state["state"].items()}
    return {**state, "state": states}


def restore_optimizer(optimizer: torch.optim.Optimizer, state: Mapping[str, Any]) -> None:
    """Puts what `optimizer_state` gave into `optimizer`, whose parameters may be sharded in another way than those were."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    states = {
        index: {name: _like(value, parameters[index]) for name, value in own.items()}
        for index, own in state["state"].items()
    }
    optimizer.load_state_dict({**state, "state": states})


def _on_cpu(value: Any) -> Any:
    return whole(value).cpu() if isinstance(value, Tensor) else value


def _like(value: Any, parameter: Tensor) -> Any:
    """`value` in shards as `parameter` is, if it has its shape; a count of steps has not."""
    if not isinstance(parameter, DTensor) or not isinstance(value, Tensor) or value.shape != parameter.shape:
        return value
    mesh = parameter.device_mesh
    return distribute_tensor(value.to(parameter.device), mesh, parameter.placements, src_data_rank=None)


def _layers(model: nn.Module) -> Iterator[nn.Module]:
    names = set(model._no_split_modules or ()) if isinstance(model, PreTrainedModel) else set()
    found = [module for module in model.modules() if type(module).__name__ in names]
    if not found:
        raise ConfigError(
            f'train.parallel = "fsdp" shards a model by its layers, but {type(model).__name__} does not name them; '
            'use "ddp"'
        )
    yield from found
