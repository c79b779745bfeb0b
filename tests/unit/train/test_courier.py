import gc

import pytest
import torch.distributed as dist

from elocution.errors import WorldError
from elocution.train.courier import Courier, open_courier
from elocution.train.world import ALONE


def test_what_is_sent_arrives_in_order_at_the_process_it_is_for() -> None:
    first = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    stores = [dist.TCPStore("localhost", first.port, is_master=False, wait_for_workers=False) for _ in range(2)]
    sender, one, two = (Courier(store, rank=rank, size=3) for rank, store in enumerate([first, *stores]))
    assert one.receive(0.0) is None
    for value in ("a", ["b"]):
        sender.send(1, value)
    sender.send(2, "c")
    assert (one.receive(5.0), one.receive(5.0), one.receive(0.05)) == ("a", ["b"], None)
    sender.fail("out of order")
    assert two.receive(5.0) == "c"
    for each in (one, two):
        with pytest.raises(WorldError, match="out of order"):
            each.receive(5.0)
    assert first.num_keys() == 0  # nothing is kept that was received


def test_s85_a_first_process_that_is_gone_is_named() -> None:
    first = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    end = Courier(dist.TCPStore("localhost", first.port, is_master=False, wait_for_workers=False), rank=1, size=2)
    del first
    gc.collect()
    with pytest.raises(WorldError, match="process 0, which draws for all, is out of reach"):
        end.receive(5.0)


def test_the_ends_meet_at_a_port_that_the_first_process_chose() -> None:
    with open_courier(ALONE, wait_s=5) as end:
        assert end.size == 1
        assert end.receive(0.0) is None
