"""New weights to SGLang servers through a folder that both sides see."""

from pathlib import Path
from typing import Literal

from elocution.errors import EngineError
from elocution.rollout.sglang_client import SglangServers
from elocution.rollout.sglang_protocol import (
    LoadLoraAdapter,
    ModelInfo,
    UnloadLoraAdapter,
    UpdateWeightsFromDisk,
    UpdateWeightVersion,
)

__all__ = ["SglangSync"]

_ADAPTER = "policy-"  # how the names of adapters that this program loads begin


class SglangSync:
    """Loads versions; one that any server did not take is never believed to be live."""

    def __init__(self, servers: SglangServers) -> None:
        self._servers = servers
        self._adapter: str | None = None
        self._loaded: tuple[Path, int] | None = None
        self._num_loads = 0

    @property
    def adapter(self) -> str | None:
        """The name of the adapter that requests must ask for, if there is one."""
        return self._adapter

    def load(self, path: Path, version: int, *, kind: Literal["weights", "adapter"]) -> None:
        """After this returns every server has the weights in the folder `path`, an empty cache, and says so.

        Servers are paused in between: a request that slips in between an update and the emptying of the cache ends the
        server's process. If a server fails they stay paused, for after a failed load it may hold a mixture of weights.

        Raises: EngineError if a server did not take the weights.
        """
        self._loaded = None
        # A new name each time: prompts are cached by adapter, and one that still runs is not changed under it.
        self._adapter = None if kind == "weights" else f"{_ADAPTER}{self._num_loads}"
        self._num_loads += 1
        self._load_into(self._servers, path, version)
        self._loaded = path, version

    def restore(self) -> int:
        """Loads what was loaded last into the servers that do not say they have it; returns how many these were.

        A server that was started again has what it was launched with.

        Raises: EngineError if nothing was loaded, or a server does not take it.
        """
        if self._loaded is None:
            raise EngineError("no weights have been published to the SGLang servers")
        path, version = self._loaded
        lost = [
            server
            for server, info in zip(self._servers.one_by_one(), self._servers.model_info(), strict=True)
            if not self._has(info, path, version)
        ]
        for server in lost:
            self._load_into(server, path, version)
        return len(lost)

    def _has(self, info: ModelInfo, path: Path, version: int) -> bool:
        is_right_path = self._adapter is not None or info.model_path == str(path)
        return info.weight_version == str(version) and is_right_path

    def _load_into(self, servers: SglangServers, path: Path, version: int) -> None:
        servers.pause()
        if self._adapter is None:
            servers.update_weights(UpdateWeightsFromDisk(model_path=str(path), weight_version=str(version)))
        else:
            for server in servers.one_by_one():
                (loaded,) = server.load_adapter(LoadLoraAdapter(lora_name=self._adapter, lora_path=str(path)))
                for old in sorted(loaded - {self._adapter}):
                    if old.startswith(_ADAPTER):
                        server.unload_adapter(UnloadLoraAdapter(lora_name=old))
            servers.flush_cache()
            servers.update_weight_version(UpdateWeightVersion(new_version=str(version)))
        for info in servers.model_info():
            if not self._has(info, path, version):
                raise EngineError(
                    f"a server says it has version {info.weight_version} of {info.model_path} after it was given "
                    f"version {version} at {path}"
                )
        servers.resume()
