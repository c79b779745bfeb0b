"""Weights to SGLang servers through a process group, without a disk in between. Knows messages and groups, no policy."""

import queue
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import accumulate

from torch import Tensor

from elocution.errors import EngineError
from elocution.rollout.launch import find_free_port
from elocution.rollout.sglang_client import SglangServers
from elocution.rollout.sglang_protocol import InitWeightsUpdateGroup, UpdateWeightsFromDistributed
from elocution.rollout.sync.base import Buckets
from elocution.rollout.sync.collective import GroupBackend, WeightGroup, address_seen_from

__all__ = ["send_tensors"]

# A server that refuses leaves the group, which is often noticed before its answer is there.
_ANSWER_S = 10.0


def send_tensors(servers: SglangServers, buckets: Buckets, version: int) -> None:
    """After this returns, every server has the tensors and an empty cache, and calls its weights `version`.

    The servers must be paused. A group lives for one load, so that a server which was started again is no special case.

    Raises: EngineError if a server did not take them; it may then hold a mixture.
    """
    with suppress(EngineError):
        servers.end_weight_update()  # of a load that failed half-way; refused where there is none
    stream = _with_last(buckets())
    bucket, is_last = next(stream)
    group = _meet(servers, next(iter(bucket.values())).is_cuda)
    try:
        servers.begin_weight_update()
        _send(servers, group, bucket, str(version) if is_last else None)
        for bucket, is_last in stream:
            _send(servers, group, bucket, str(version) if is_last else None)
        servers.end_weight_update()
        servers.destroy_group(group.name)
    finally:
        group.close()


def _meet(servers: SglangServers, on_gpu: bool) -> WeightGroup:
    sizes = servers.tensor_parallel_sizes()
    first_ranks = [1, *accumulate(sizes, initial=1)][1:-1]
    backend: GroupBackend = "nccl" if on_gpu else "gloo"
    address = address_seen_from(servers.settings.urls)
    port, name, world_size = find_free_port(address), f"elocution-{uuid.uuid4().hex[:12]}", 1 + sum(sizes)
    messages = [
        InitWeightsUpdateGroup(
            master_address=address,
            master_port=port,
            rank_offset=rank,
            world_size=world_size,
            group_name=name,
            backend=backend,
        )
        for rank in first_ranks
    ]
    made: list[WeightGroup] = []

    def join() -> None:
        made.append(
            WeightGroup(
                address,
                port,
                rank=0,
                world_size=world_size,
                name=name,
                backend=backend,
                timeout_s=servers.settings.sync_timeout_s,
            )
        )

    _at_once(lambda: servers.init_group(messages), join)
    return made[0]


def _send(servers: SglangServers, group: WeightGroup, bucket: Mapping[str, Tensor], version: str | None) -> None:
    message = UpdateWeightsFromDistributed(
        names=tuple(bucket),
        dtypes=tuple(str(tensor.dtype).removeprefix("torch.") for tensor in bucket.values()),
        shapes=tuple(tuple(tensor.shape) for tensor in bucket.values()),
        group_name=group.name,
        flush_cache=version is not None,
        weight_version=version,
    )
    tensors = list(bucket.values())
    _at_once(lambda: servers.update_weights_from_distributed(message), lambda: group.broadcast(tensors))


def _at_once(tell: Callable[[], None], act: Callable[[], None]) -> None:
    """Tells the servers to do their part, and does this process's part meanwhile.

    An error ends the wait for the other part, which may go on until its own deadline: that of the servers comes first, for
    it says more.
    """
    told: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
    both: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()

    def run(part: Callable[[], None], ended: Callable[[BaseException | None], None]) -> None:
        try:
            part()
        except BaseException as error:  # raised in the caller's thread
            ended(error)
        else:
            ended(None)

    def is_told(error: BaseException | None) -> None:
        told.put(error)
        both.put(error)

    threading.Thread(target=run, args=(tell, is_told), daemon=True).start()
    threading.Thread(target=run, args=(act, both.put), daemon=True).start()
    for _ in range(2):
        error = both.get()
        if error is not None:
            with suppress(queue.Empty):
                raise told.get(timeout=_ANSWER_S) or error
            raise error


def _with_last(buckets: Iterator[Mapping[str, Tensor]]) -> Iterator[tuple[Mapping[str, Tensor], bool]]:
    """Each bucket and whether it is the last."""
    held = next(buckets)
    for bucket in buckets:
        yield held, False
        held = bucket
    yield held, True
