"""An in-process engine with weights of its own, which it loads from folders: nothing is shared with the trainer."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from elocution.errors import EngineError
from elocution.policies import Policy, load_policy
from elocution.policies.lora import adapted_weights, adapter_tensors, merged_state_dict
from elocution.rollout.base import RolloutRequest
from elocution.rollout.sync.base import LoadReport, Probe
from elocution.rollout.sync.manifest import fingerprint_of_state, read_manifest
from elocution.rollout.sync.probes import greedy_ids, probe_logprobs
from elocution.rollout.torch_engine import TorchEngine
from elocution.types import Completion

__all__ = ["LoadedEngine"]


class LoadedEngine:
    """Samples as `TorchEngine` does, from whichever version it has loaded last; at a cost of one more model."""

    def __init__(self, family: str, *, precision: str, temperature: float, batch_size: int) -> None:
        self._family, self._precision, self._batch_size = family, precision, batch_size
        self.temperature = temperature
        self._policy: Policy | None = None
        self._engine: TorchEngine | None = None

    def load_weights(self, directory: Path, version: int) -> LoadReport:
        """As `Loader`; the report has a fingerprint."""
        policy = self._load(directory, version)
        found = fingerprint_of_state(merged_state_dict(policy.model), read_manifest(directory))
        return LoadReport(fingerprint=found)

    def load_adapter(self, directory: Path, version: int) -> LoadReport:
        """As `Loader`; the base is loaded again from where the adapter's record says. The report is complete."""
        policy = self._load(directory, version)
        found = fingerprint_of_state(adapter_tensors(policy.model), read_manifest(directory))
        return LoadReport(bound_modules=len(adapted_weights(policy.model)), fingerprint=found)

    def _load(self, directory: Path, version: int) -> Policy:
        policy = load_policy(self._family, directory, precision=self._precision)
        policy.model.eval().requires_grad_(False)
        engine = TorchEngine(policy, temperature=self.temperature, batch_size=self._batch_size)
        engine.publish(version)
        self._policy, self._engine = policy, engine
        return policy

    def stream(self, requests: Sequence[RolloutRequest]) -> Iterator[tuple[int, int, Completion]]:
        """As `RolloutEngine.stream`. Raises: EngineError if nothing was loaded."""
        if self._engine is None:
            raise EngineError("no weights have been loaded into the engine")
        self._engine.temperature = self.temperature
        yield from self._engine.stream(requests)

    def score(self, probes: Sequence[Probe]) -> list[NDArray[np.float32]]:
        """As `ProbeScorer`. Raises: EngineError if nothing was loaded."""
        return probe_logprobs(self._loaded(), probes, temperature=self.temperature)

    def greedy(self, probes: Sequence[Probe]) -> list[NDArray[np.int64]]:
        """As `GreedyDecoder`. Raises: EngineError if nothing was loaded."""
        return greedy_ids(self._loaded(), probes)

    def _loaded(self) -> Policy:
        if self._policy is None:
            raise EngineError("no weights have been loaded into the engine")
        return self._policy
