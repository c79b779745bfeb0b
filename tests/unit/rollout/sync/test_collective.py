import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from elocution.errors import EngineError
from elocution.rollout.launch import find_free_port
from elocution.rollout.sync.collective import WeightGroup, address_seen_from


def group(port: int, rank: int, timeout_s: float = 30) -> WeightGroup:
    return WeightGroup("127.0.0.1", port, rank=rank, world_size=3, name="w", backend="gloo", timeout_s=timeout_s)


def test_rank_0_fills_the_tensors_of_all_others() -> None:
    port = find_free_port("127.0.0.1")
    sent = [torch.arange(6.0).reshape(2, 3), torch.ones(4, dtype=torch.bfloat16)]
    received = [[torch.zeros(2, 3), torch.zeros(4, dtype=torch.bfloat16)] for _ in range(2)]
    with ThreadPoolExecutor(3) as pool:
        groups = list(pool.map(lambda rank: group(port, rank), range(3)))
        list(pool.map(lambda part: part[0].broadcast(part[1]), zip(groups, [sent, *received], strict=True)))
    assert all(torch.equal(one, other) for own in received for one, other in zip(own, sent, strict=True))


def test_a_member_that_leaves_ends_the_wait_of_the_others() -> None:
    port = find_free_port("127.0.0.1")
    with ThreadPoolExecutor(3) as pool:
        groups = list(pool.map(lambda rank: group(port, rank), range(3)))
        waiting = pool.submit(groups[1].broadcast, [torch.zeros(3)])
        threading.Timer(0.2, groups[0].close).start()
        groups.clear()
        with pytest.raises(EngineError, match="weights could not be sent through the group"):
            waiting.result()


def test_members_that_do_not_come_are_waited_for_so_long_only() -> None:
    with pytest.raises(EngineError, match=r"3 processes could not meet at 127\.0\.0\.1:\d+ over gloo"):
        group(find_free_port("127.0.0.1"), 0, timeout_s=1)


def test_a_backend_that_torch_was_built_without_is_named() -> None:
    if torch.distributed.is_nccl_available():
        pytest.skip("needs a torch without nccl")
    with pytest.raises(EngineError, match="over nccl"):
        WeightGroup(
            "127.0.0.1", find_free_port("127.0.0.1"), rank=0, world_size=1, name="w", backend="nccl", timeout_s=5
        )


def test_servers_of_this_machine_see_it_at_loopback() -> None:
    assert address_seen_from(["http://127.0.0.1:80", "http://localhost:1"]) in ("127.0.0.1", "::1")
    with pytest.raises(EngineError, match="there is no way from here to http://no-such-host"):
        address_seen_from(["http://no-such-host.invalid:1"])
