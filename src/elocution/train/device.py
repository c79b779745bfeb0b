"""Which device a process computes on."""

import torch

from elocution.errors import ConfigError
from elocution.train.launcher import Place

__all__ = ["choose_device"]


def choose_device(name: str, place: Place, *, num_gpus: int | None = None) -> torch.device:
    """The device of the process at `place` for `train.device = name`; `num_gpus` is how many there are, as torch says.

    `auto` is a GPU if there is one, else the CPU. Several processes on one machine take one GPU each, by `local_rank`.

    Raises: ConfigError if there is no such device, or several processes would share a GPU.
    """
    found = torch.cuda.device_count() if num_gpus is None else num_gpus
    if name == "auto":
        name = "cuda" if found else "cpu"
    kind, _, number = name.partition(":")
    if kind == "cpu":
        return torch.device("cpu")
    if kind == "cuda":
        if number and place.local_size > 1:
            raise ConfigError(
                f"train.device = {name!r} gives {place.local_size} processes one GPU; write 'cuda', and choose the GPUs "
                "by CUDA_VISIBLE_DEVICES"
            )
        index = int(number) if number else place.local_rank
        if index >= found:
            raise ConfigError(
                f"train.device = {name!r} needs GPU {index} on this machine, and torch sees {found}; start at most {found} "
                "processes here, or set train.device = 'cpu'"
            )
        return torch.device("cuda", index)
    module = getattr(torch, kind)
    if not module.is_available():
        raise ConfigError(f"train.device = {name!r}, but this torch finds no {kind} device; set 'cpu' or 'auto'")
    if place.local_size > 1:
        raise ConfigError(f"train.device = {name!r} takes one process; several compute on 'cpu' or on 'cuda'")
    return torch.device(name)
