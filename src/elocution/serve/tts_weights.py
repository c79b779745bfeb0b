"""Weights that a trainer sends through a process group: taken when all have come, as they are announced. Knows no HTTP."""

import threading

import torch
from torch import Tensor

from elocution.errors import EngineError
from elocution.rollout.sglang_protocol import InitWeightsUpdateGroup, UpdateWeightsFromDistributed
from elocution.rollout.sync.collective import WeightGroup
from elocution.serve.tts_engine import TtsEngine

__all__ = ["WeightUpdates"]

_TIMEOUT_S = 1800.0


class WeightUpdates:
    """Groups that this server is in, and the update that is under way; calls wait for each other."""

    def __init__(self, engine: TtsEngine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._groups: dict[str, WeightGroup] = {}
        self._received: dict[str, Tensor] | None = None
        self._version: str | None = None

    def join(self, message: InitWeightsUpdateGroup) -> None:
        """Returns once all members are there. Raises: EngineError if they do not come, or the backend cannot be used."""
        if message.backend != "gloo":
            raise EngineError(f"this server receives weights over gloo only, not {message.backend!r:.40}")
        with self._lock:
            self._groups[message.group_name] = WeightGroup(
                message.master_address,
                message.master_port,
                rank=message.rank_offset,
                world_size=message.world_size,
                name=message.group_name,
                backend="gloo",
                timeout_s=_TIMEOUT_S,
            )

    def leave(self, name: str) -> None:
        """Raises: EngineError if this server is in no such group."""
        with self._lock:
            self._group(name)
            self._groups.pop(name).close()

    def begin(self) -> None:
        """Raises: EngineError if an update is under way."""
        with self._lock:
            if self._received is not None:
                raise EngineError("an update of the weights is under way; end it first")
            self._received, self._version = {}, None

    def receive(self, message: UpdateWeightsFromDistributed) -> None:
        """Takes what rank 0 sends, and keeps it until `end`.

        Raises: EngineError if that cannot be the model's weights; this server leaves the group then, so that the others do
        not wait for it.
        """
        with self._lock:
            group = self._group(message.group_name)
            try:
                if self._received is None:
                    raise EngineError("no update of the weights is under way; begin one first")
                self._engine.check_tensors(dict(zip(message.names, message.shapes, strict=True)))
                tensors = [
                    torch.empty(shape, dtype=_dtype(name), device="cpu")
                    for name, shape in zip(message.dtypes, message.shapes, strict=True)
                ]
                group.broadcast(tensors)
            except BaseException:
                self._groups.pop(message.group_name).close()
                raise
            self._received |= dict(zip(message.names, tensors, strict=True))
            self._version = message.weight_version or self._version

    def end(self) -> None:
        """Draws with what was received from now on; with nothing of it if the last part, which names the version, never came.

        Raises: EngineError if no update is under way.
        """
        with self._lock:
            if self._received is None:
                raise EngineError("no update of the weights is under way")
            received, self._received = self._received, None
            if self._version is not None:
                self._engine.load_tensors(received, self._version)

    def _group(self, name: str) -> WeightGroup:
        if name not in self._groups:
            raise EngineError(f"this server is in no group {name!r:.80}")
        return self._groups[name]


def _dtype(name: str) -> torch.dtype:
    """Raises: EngineError if torch has no such type."""
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise EngineError(f"there is no type of tensors {name!r:.40}")
    return dtype
