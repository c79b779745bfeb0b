"""One policy, its adapters and an in-process engine behind a lock: draws, scores, and takes other weights whole or not at all.

Knows no HTTP.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elocution.errors import CheckpointError, EngineError
from elocution.policies.base import Policy
from elocution.rollout.agreement import score_completions
from elocution.rollout.base import RolloutRequest
from elocution.rollout.sync.manifest import MANIFEST, verify_version
from elocution.rollout.torch_engine import TorchEngine
from elocution.types import Completion

__all__ = ["Drawn", "Job", "TtsEngine"]


@dataclass(frozen=True, eq=False)
class Job:
    """One prompt: a completion to be drawn for each of `seeds`, or `given` completions to be scored.

    Shapes: `prompt_ids` [L] or [L, C]; `given` [T, C] each, legal ids. `adapter` is a name, None the weights alone.
    """

    prompt_ids: NDArray[np.int64]
    temperature: float
    max_new: int = 0
    seeds: tuple[tuple[int, ...], ...] = ()
    given: tuple[NDArray[np.int64], ...] = ()
    adapter: str | None = None

    @property
    def bucket(self) -> int:
        """Jobs of one bucket can run together."""
        return hash((self.temperature, bool(self.given), self.adapter))


@dataclass(frozen=True, eq=False)
class Drawn:
    """The completions of a job, or the log-probs [T, C] of what was given, and the version of the weights."""

    completions: tuple[Completion, ...]
    scores: tuple[NDArray[np.float32], ...]
    weight_version: str


class TtsEngine:
    """Safe to use in many threads: a batch ends before weights change, and none begins until they have."""

    def __init__(self, load: Callable[[Path], Policy], path: Path, *, batch_size: int) -> None:
        """`load` reads a checkpoint, or an adapter with its base, and raises if it is not whole."""
        self._load, self._batch_size = load, batch_size
        self._lock = threading.Lock()
        self.model_path, self.weight_version = str(path), "default"
        self.policy = load(path)
        self._engines: dict[str | None, TorchEngine] = {None: self._engine_of(self.policy)}
        self._adapters: dict[str, tuple[Policy, str]] = {}

    @property
    def adapters(self) -> Mapping[str, str]:
        """The path of each adapter by its name."""
        return {name: path for name, (_, path) in self._adapters.items()}

    def run(self, jobs: Sequence[Job]) -> list[Drawn]:
        """The result of each job; all are of one bucket.

        Raises: EngineError if the adapter is unknown, or probabilities are not finite.
        """
        first = jobs[0]
        with self._lock:
            if first.adapter is not None and first.adapter not in self._adapters:
                raise EngineError(
                    f"there is no adapter {first.adapter!r}; loaded: {', '.join(self._adapters) or 'none'}"
                )
            policy = self.policy if first.adapter is None else self._adapters[first.adapter][0]
            if first.given:
                return self._score(policy, jobs)
            engine = self._engines[first.adapter]
            engine.temperature = first.temperature
            groups = engine.generate([RolloutRequest(job.prompt_ids, job.seeds, job.max_new) for job in jobs])
            return [Drawn(tuple(group), (), self.weight_version) for group in groups]

    def load_weights(self, path: Path, version: str | None) -> None:
        """Everything is drawn with the checkpoint in `path` after this; adapters are forgotten.

        Raises: CheckpointError if it is not whole, or speaks with other ids; the weights are then as before.
        """
        policy = self._checked(path)
        engine = self._engine_of(policy)
        with self._lock:
            self.policy, self._engines, self._adapters = policy, {None: engine}, {}
            self.model_path = str(path)
            self.weight_version = self.weight_version if version is None else version

    def check_tensors(self, shapes: Mapping[str, Sequence[int]]) -> None:
        """Raises: EngineError if the model has no tensor of that name and shape."""
        own = self.policy.model.state_dict()
        for name, shape in shapes.items():
            if name not in own:
                raise EngineError(f"the model has no tensor {name!r:.120}")
            if tuple(own[name].shape) != tuple(shape):
                raise EngineError(f"{name} has shape {list(own[name].shape)} here, {list(shape)} was announced")

    def load_tensors(self, tensors: Mapping[str, Tensor], version: str) -> None:
        """Everything is drawn with `tensors`, which `check_tensors` must let pass, after this; adapters are forgotten."""
        with self._lock:
            own = self.policy.model.state_dict()
            with torch.no_grad():
                for name, tensor in tensors.items():
                    own[name].copy_(tensor)
            self._engines, self._adapters = {None: self._engine_of(self.policy)}, {}
            self.weight_version = version

    def load_adapter(self, name: str, path: Path) -> None:
        """Raises: CheckpointError if it is no whole adapter, or its base is not what it was."""
        policy = self._checked(path)
        engine = self._engine_of(policy)
        with self._lock:
            self._adapters[name] = (policy, str(path))
            self._engines[name] = engine

    def unload_adapter(self, name: str) -> None:
        """Raises: EngineError if there is no such adapter."""
        with self._lock:
            if name not in self._adapters:
                raise EngineError(f"there is no adapter {name!r}; loaded: {', '.join(self._adapters) or 'none'}")
            del self._adapters[name], self._engines[name]

    def _checked(self, path: Path) -> Policy:
        if not path.is_dir():
            raise CheckpointError(f"{path} is no folder that this server sees")
        if (path / MANIFEST).is_file():
            verify_version(path)
        policy = self._load(path)
        ids = [
            (each.channel_sizes, each.legal_ids.tolist(), each.stop_ids, each.max_positions)
            for each in (policy, self.policy)
        ]
        if ids[0] != ids[1]:
            raise CheckpointError(f"{path} has other speech ids or another length than the model that is served")
        return policy

    def _engine_of(self, policy: Policy) -> TorchEngine:
        policy.model.eval().requires_grad_(False)
        engine = TorchEngine(policy, temperature=1.0, batch_size=self._batch_size)
        engine.publish(0)
        return engine

    def _score(self, policy: Policy, jobs: Sequence[Job]) -> list[Drawn]:
        rows = [(job.prompt_ids, given) for job in jobs for given in job.given]
        found: list[NDArray[np.float32]] = []
        for start in range(0, len(rows), self._batch_size):
            part = rows[start : start + self._batch_size]
            prompts, given = [prompt for prompt, _ in part], [ids for _, ids in part]
            found += score_completions(policy, prompts, given, temperature=jobs[0].temperature)
        scores = iter(found)
        return [Drawn((), tuple(next(scores) for _ in job.given), self.weight_version) for job in jobs]
