"""What stands for a trainer in the tests of weight syncs, and an engine for it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import nn

from elocution.policies.llasa import LlasaPolicy
from elocution.rollout.sync.base import Probe
from elocution.rollout.sync.loaded_engine import LoadedEngine
from elocution.types import Utterance

Strategy = Literal["adapter", "delta", "full"]
UTTERANCES = [
    Utterance(str(i), text) for i, text in enumerate(("one", "mary painted the house", "three three one one"))
]


@dataclass
class Trainer:
    """What stands for a trainer: a policy, its trained parameters, and a step that moves them."""

    policy: LlasaPolicy
    trained: dict[str, nn.Parameter]
    base: Path
    probes: tuple[Probe, ...]

    def step(self, size: float = 0.005, seed: int = 7) -> None:
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in self.trained.values():
                parameter.add_(size * torch.randn(parameter.shape, generator=generator))


def loaded_engine() -> LoadedEngine:
    return LoadedEngine("llasa", precision="fp32", temperature=1.0, batch_size=16)
