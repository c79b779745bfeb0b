"""Objects from process 0 to one of the others, apart from what all exchange: for threads that must not wait for all."""

import os
import pickle
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from elocution.errors import WorldError
from elocution.train.world import World

__all__ = ["Courier", "open_courier"]


_LOOK_S = 0.01


@dataclass(frozen=True)
class _Failure:
    reason: str


class Courier:
    """One end of a way from process 0 to each of the others; what is sent arrives in order. For one thread at a time."""

    def __init__(self, store: Any, *, rank: int, size: int) -> None:
        """`store`, of torch.distributed, is shared by the `size` processes through a connection of its own in each."""
        self._store, self._rank, self.size = store, rank, size
        self._sent, self._received = [0] * size, 0

    def send(self, to: int, value: Any) -> None:
        """From process 0 to process `to`; does not wait for it.

        Raises: WorldError if the store is gone.
        """
        with _explained():
            self._store.set(f"{to}/{self._sent[to]}", pickle.dumps(value))
        self._sent[to] += 1

    def fail(self, reason: str) -> None:
        """Makes `receive` raise in all other processes, once they have received what was sent before."""
        for to in range(1, self.size):
            self.send(to, _Failure(reason))

    def receive(self, wait_s: float) -> Any | None:
        """The next value for this process, which is not None; None if it does not come within `wait_s`.

        Raises: WorldError if process 0 has failed, or is gone.
        """
        key = f"{self._rank}/{self._received}"
        deadline = time.monotonic() + wait_s
        with _explained():
            while not self._store.check([key]):  # `wait` would log each time that it has waited in vain
                if time.monotonic() >= deadline:
                    return None
                time.sleep(_LOOK_S)
            value = pickle.loads(self._store.get(key))
            self._store.delete_key(key)
        self._received += 1
        if isinstance(value, _Failure):
            raise WorldError(value.reason)
        return value


@contextmanager
def open_courier(world: World, *, wait_s: float) -> Iterator[Courier]:
    """The ends of one way, in all processes of `world` at once; they meet at an address that process 0 has chosen.

    Raises: WorldError if they do not find each other.
    """
    host = os.environ.get("MASTER_ADDR", "localhost")
    wait = timedelta(seconds=wait_s)
    with _explained():
        is_first = world.rank == 0
        own = _store(host, 0, wait, is_master=True) if is_first else None
        port = world.gather(own.port if own else None)[0]
        assert port is not None  # process 0 has told it
        store = own or _store(host, port, wait, is_master=False)
    yield Courier(store, rank=world.rank, size=world.size)


def _store(host: str, port: int, wait: timedelta, *, is_master: bool) -> Any:
    # Public, but not declared so.
    return dist.TCPStore(host, port, is_master=is_master, wait_for_workers=False, timeout=wait)  # type: ignore[attr-defined]


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:  # torch.distributed has no narrower class for a lost connection
        raise WorldError(f"process 0, which draws for all, is out of reach: {str(error).splitlines()[0]}") from error
