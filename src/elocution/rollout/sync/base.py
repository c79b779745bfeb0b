"""What a weight sync needs of an engine, and the values that pass between its parts. Names no engine."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from elocution.rollout.base import RolloutRequest
from elocution.types import Completion

__all__ = [
    "REHEARSAL_VERSION",
    "AdapterLoader",
    "Buckets",
    "Drawer",
    "GreedyDecoder",
    "LoadReport",
    "Loader",
    "Probe",
    "ProbeScorer",
    "TensorLoader",
    "WeightLoader",
]

REHEARSAL_VERSION = -1  # of weights that no policy ever had; nothing is drawn for training with them


class Probe(NamedTuple):
    """A fixed sequence by which weights are compared. Shapes: `prompt_ids` [L], `completion_ids` [T, C], legal ids."""

    prompt_ids: NDArray[np.int64]
    completion_ids: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class LoadReport:
    """What an engine says of the weights that it has loaded; None where it cannot tell.

    `bound_modules` counts the layers that an adapter was bound to. `fingerprint` is that of the tensors in the engine's
    memory, as `elocution.rollout.sync.manifest.fingerprint` computes it.
    """

    bound_modules: int | None = None
    fingerprint: str | None = None


class Drawer(Protocol):
    """Draws completions with the weights that it holds, each stamped with the version it was told for them."""

    temperature: float

    def stream(self, requests: Sequence[RolloutRequest], /) -> Iterator[tuple[int, int, Completion]]:
        """As `RolloutEngine.stream`."""


class Loader(Protocol):
    """Takes the weights in a folder."""

    def __call__(self, directory: Path, version: int) -> LoadReport | None:
        """After this returns, everything that the engine computes is from these weights, no cache of older ones left.

        The folder is whole and never changes. `version` is stamped on completions; it may be `REHEARSAL_VERSION`.

        Raises: EngineError or CheckpointError if it could not be done; the engine may then hold anything.
        """


class WeightLoader(Protocol):
    """An engine that loads whole checkpoints."""

    def load_weights(self, directory: Path, version: int) -> LoadReport | None:
        """As `Loader`; the folder holds a checkpoint in the layout of the base, cut into shards with an index."""


class AdapterLoader(Protocol):
    """An engine that has the base and loads adapters."""

    def load_adapter(self, directory: Path, version: int) -> LoadReport | None:
        """As `Loader`; the folder holds an adapter in peft's layout, which takes the place of the one before."""


Buckets = Callable[[], Iterator[Mapping[str, Tensor]]]
"""The tensors of a version by their names in the base, in parts that fit into memory; each call gives them again."""


class TensorLoader(Protocol):
    """An engine that is sent tensors."""

    def load_tensors(self, buckets: Buckets, version: int) -> LoadReport | None:
        """As `Loader`, of tensors in memory; the engine may ask for them again until another version is loaded."""


class ProbeScorer(Protocol):
    """An engine that can tell the log-probs of ids that it is given."""

    def score(self, probes: Sequence[Probe], /) -> list[NDArray[np.float32]]:
        """Log-probs of the completions, nats, over the legal ids at the engine's temperature, which is 1 when a sync asks.

        Shapes: [T, C] for each probe, or [T] if there is one channel.
        """


class GreedyDecoder(Protocol):
    """An engine that can draw the most probable legal id at each position."""

    def greedy(self, probes: Sequence[Probe], /) -> list[NDArray[np.int64]]:
        """Ids after each prompt, up to a stop id or as many as the probe's completion has. Shapes: [T', C] each."""
