"""A group of processes in which the first sends tensors to all others, beside any group that a process has already.

Source of the keys under which members meet, so that SGLang's servers may be members: `init_custom_process_group`,
sglang/srt/utils/common.py, and `_new_process_group_helper`, torch/distributed/distributed_c10d.py.
"""

import socket
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Literal
from urllib.parse import urlsplit

from torch import Tensor
from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]  # public, but not in __all__

from elocution.errors import EngineError

__all__ = ["GroupBackend", "WeightGroup", "address_seen_from"]

GroupBackend = Literal["gloo", "nccl"]
_DEVICES = {"gloo": "cpu", "nccl": "cuda"}


class WeightGroup:
    """Rank 0 sends, all others receive; whoever makes one waits until all have."""

    def __init__(
        self, address: str, port: int, *, rank: int, world_size: int, name: str, backend: GroupBackend, timeout_s: float
    ) -> None:
        """Members meet at `address` and `port`, where rank 0 listens. `nccl` needs tensors on a GPU, `gloo` on the CPU.

        Raises: EngineError if not all have come in `timeout_s` seconds, or the backend is not there.
        """
        self.name = name
        timeout = timedelta(seconds=timeout_s)
        try:
            meeting = TCPStore(address, port, world_size, is_master=rank == 0, timeout=timeout)
            store = PrefixStore(f"{_DEVICES[backend]}/", PrefixStore(f"{name}/", PrefixStore(name, meeting)))
            self._group: Any = _new_group(store, rank, world_size, backend, timeout)
        except (RuntimeError, ImportError) as error:  # torch's errors of distributed programs are RuntimeErrors
            raise EngineError(
                f"{world_size} processes could not meet at {address}:{port} over {backend}: {_first_line(error)}"
            ) from error

    def broadcast(self, tensors: Sequence[Tensor]) -> None:
        """Sends rank 0's `tensors`, or fills these with them: as many everywhere, of the same shapes and types.

        Raises: EngineError if a member has left, or is late.
        """
        try:
            for work in [self._group.broadcast(tensor, 0) for tensor in tensors]:
                work.wait()
        except RuntimeError as error:
            raise EngineError(f"weights could not be sent through the group: {_first_line(error)}") from error

    def close(self) -> None:
        """Leaves the group; members that wait for this one fail."""
        self._group = None


def address_seen_from(urls: Sequence[str]) -> str:
    """This machine's address as the servers at `urls` see it; loopback only if all of them are on this machine.

    Raises: EngineError if there is no way to one of them.
    """
    found = []
    for url in urls:
        parts = urlsplit(url)
        try:
            family, kind, protocol, _, place = socket.getaddrinfo(
                parts.hostname, parts.port or 80, type=socket.SOCK_DGRAM
            )[0]
            with socket.socket(family, kind, protocol) as probe:
                probe.connect(place)  # sends nothing, but chooses the interface
                found.append(str(probe.getsockname()[0]))
        except OSError as error:
            raise EngineError(f"there is no way from here to {url}: {error.strerror or error}") from error
    return next((address for address in found if not address.startswith("127.") and address != "::1"), found[0])


def _new_group(store: PrefixStore, rank: int, world_size: int, backend: GroupBackend, timeout: timedelta) -> Any:
    if backend == "gloo":
        from torch.distributed.distributed_c10d import ProcessGroupGloo

        return ProcessGroupGloo(store, rank, world_size, timeout)
    from torch.distributed.distributed_c10d import ProcessGroupNCCL

    options = ProcessGroupNCCL.Options()
    options._timeout = timeout
    return ProcessGroupNCCL(store, rank, world_size, options)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0][:300]
