"""New weights to SGLang servers, through a folder that both sides see or through a process group."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from elocution.errors import EngineError
from elocution.rollout.sglang_broadcast import send_tensors
from elocution.rollout.sglang_client import SglangServers
from elocution.rollout.sglang_protocol import (
    LoadLoraAdapter,
    ModelInfo,
    UnloadLoraAdapter,
    UpdateWeightsFromDisk,
    UpdateWeightVersion,
)
from elocution.rollout.sync.base import Buckets

__all__ = ["SglangSync"]

_ADAPTER = "policy-"  # how the names of adapters that this program loads begin


@dataclass(frozen=True)
class _Loaded:
    """What every server shall hold: a folder, or tensors."""

    source: Path | Buckets
    version: int
    adapter: str | None = None

    def is_held(self, info: ModelInfo) -> bool:
        """Whether a server says that it has this."""
        names_folder = self.adapter is None and isinstance(self.source, Path)
        return info.weight_version == str(self.version) and (not names_folder or info.model_path == str(self.source))


class SglangSync:
    """Loads versions; one that any server did not take is never believed to be live."""

    def __init__(self, servers: SglangServers) -> None:
        self._servers = servers
        self._loaded: _Loaded | None = None
        self._num_loads = 0

    @property
    def adapter(self) -> str | None:
        """The name of the adapter that requests must ask for, if there is one."""
        return self._loaded.adapter if self._loaded else None

    def load(self, path: Path, version: int, *, kind: Literal["weights", "adapter"]) -> None:
        """After this returns every server has the weights in the folder `path`, an empty cache, and says so.

        Servers are paused in between: a request that slips in between an update and the emptying of the cache ends the
        server's process. If a server fails they stay paused, for after a failed load it may hold a mixture of weights.

        Raises: EngineError if a server did not take the weights.
        """
        # A new name each time: prompts are cached by adapter, and one that still runs is not changed under it.
        adapter = None if kind == "weights" else f"{_ADAPTER}{self._num_loads}"
        self._load(_Loaded(path, version, adapter))

    def load_tensors(self, buckets: Buckets, version: int) -> None:
        """As `load`, of tensors that are sent through a process group."""
        self._load(_Loaded(buckets, version))

    def restore(self) -> int:
        """Loads what was loaded last into the servers that do not say they have it; returns how many these were.

        A server that was started again has what it was launched with.

        Raises: EngineError if nothing was loaded, or a server does not take it.
        """
        loaded = self._loaded
        if loaded is None:
            raise EngineError("no weights have been published to the SGLang servers")
        lost = [
            server
            for server, info in zip(self._servers.one_by_one(), self._servers.model_info(), strict=True)
            if not loaded.is_held(info)
        ]
        for server in lost:
            _load_into(server, loaded)
        return len(lost)

    def _load(self, wanted: _Loaded) -> None:
        self._loaded = None
        self._num_loads += 1
        _load_into(self._servers, wanted)
        self._loaded = wanted


def _load_into(servers: SglangServers, wanted: _Loaded) -> None:
    source, version = wanted.source, str(wanted.version)
    servers.pause()
    if not isinstance(source, Path):
        send_tensors(servers, source, wanted.version)
    elif wanted.adapter is None:
        servers.update_weights(UpdateWeightsFromDisk(model_path=str(source), weight_version=version))
    else:
        for server in servers.one_by_one():
            (loaded,) = server.load_adapter(LoadLoraAdapter(lora_name=wanted.adapter, lora_path=str(source)))
            for old in sorted(loaded - {wanted.adapter}):
                if old.startswith(_ADAPTER):
                    server.unload_adapter(UnloadLoraAdapter(lora_name=old))
        servers.flush_cache()
        servers.update_weight_version(UpdateWeightVersion(new_version=version))
    for info in servers.model_info():
        if not wanted.is_held(info):
            raise EngineError(
                f"a server says it has version {info.weight_version} of {info.model_path} after it was given version {version}"
                + (f" at {source}" if isinstance(source, Path) else "")
            )
    servers.resume()
