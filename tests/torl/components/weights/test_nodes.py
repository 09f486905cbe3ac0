"""Weights to receivers on several nodes: who sends to whom, and how often the bytes enter a node."""

import os
import socket
import stat
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from threading import Barrier

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from torl.base.errors import WeightTransferError
from torl.components.weights.channel import WeightChannel
from torl.components.weights.rendezvous import Endpoint, Rendezvous

TIMEOUT_SECONDS = 120.0
BYTES_RECEIVED = 128  # where Linux's `struct tcp_info` has tcpi_bytes_received


@given(st.integers(1, 9), st.lists(st.integers(0, 5), min_size=1, max_size=12))
def test_all_receivers_of_a_node_have_one_sender_and_the_nodes_are_shared_evenly(
    senders: int, nodes: list[int]
) -> None:
    meeting = Rendezvous("127.0.0.1", 1, len(nodes), senders, nodes=tuple(nodes))
    served = [sorted({nodes[receiver] for receiver in meeting.receivers_of(sender)}) for sender in range(senders)]
    assert sorted(node for each in served for node in each) == sorted(set(nodes))  # each node by one sender
    assert max(map(len, served)) == -(-len(set(nodes)) // senders)
    for sender in range(senders):
        assert all(meeting.sender_of(receiver) == sender for receiver in meeting.receivers_of(sender))


def test_ranks_that_are_packed_by_node_send_to_their_own() -> None:
    """Two ranks and three receivers on each of four nodes."""
    meeting = Rendezvous("127.0.0.1", 1, 12, 8, nodes=tuple(node for node in range(4) for _ in range(3)))
    assert [meeting.sender_of(receiver) // 2 for receiver in range(12)] == list(meeting.nodes)


def test_nodes_are_those_of_all_receivers() -> None:
    with pytest.raises(WeightTransferError, match="2 nodes are given for 3 receivers"):
        Rendezvous("127.0.0.1", 1, 3, nodes=(0, 1))


def weights() -> Iterator[tuple[str, torch.Tensor]]:
    """Eight megabytes, in tensors that need not fill a bucket."""
    for number in range(7):
        yield f"tensor {number}", torch.arange(300_000, dtype=torch.float32) + number


def bytes_received() -> int:
    """Over all TCP connections of this process, as the kernel has counted them."""
    total = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            if not stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                continue
            with socket.socket(fileno=os.dup(int(name))) as connection:
                if connection.family in (socket.AF_INET, socket.AF_INET6):
                    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
                    total += struct.unpack_from("Q", info, BYTES_RECEIVED)[0]
        except OSError:
            continue  # closed in between
    return total


@pytest.mark.parametrize(
    ("nodes", "entered"),
    [((0, 0, 0, 1, 1), 2), ((0, 1, 0, 1), 2), ((), 3)],
)
def test_the_network_carries_the_weights_to_each_node_once(nodes: tuple[int, ...], entered: int) -> None:
    receivers = len(nodes) or 3
    size = sum(tensor.nbytes for _, tensor in weights())
    counted = Barrier(receivers + 1, timeout=TIMEOUT_SECONDS)
    with ThreadPoolExecutor(receivers) as threads, ExitStack() as ends:
        meeting = Rendezvous("127.0.0.1", 0, receivers, nodes=nodes, timeout_seconds=TIMEOUT_SECONDS)
        sender = ends.enter_context(closing(WeightChannel(meeting, Endpoint("sender", 0))))

        def receive(number: int) -> list[list[tuple[str, torch.Tensor]]]:
            end = Endpoint("receiver", number)
            with closing(WeightChannel(sender.rendezvous, end)) as channel:
                transfers = [list(channel.receive()) for _ in range(2)]  # all held at once, as an engine may hold them
                counted.wait()
                return transfers

        receiving = [threads.submit(receive, number) for number in range(receivers)]
        before = bytes_received()
        for _ in range(2):
            sender.send(weights(), bucket_bytes=1 << 21, checksum=True)
        received = bytes_received() - before
        counted.wait()
        for transfer in (transfer for each in receiving for transfer in each.result()):
            for (_, found), (_, sent) in zip(transfer, weights(), strict=True):
                assert torch.equal(found, sent)
    assert 2 * entered * size <= received < 2 * entered * size * 1.1


def test_failing_neighbor_is_noticed_by_sender_and_lender() -> None:
    with ThreadPoolExecutor(2) as threads:
        meeting = Rendezvous("127.0.0.1", 0, 2, nodes=(0, 0), timeout_seconds=TIMEOUT_SECONDS)
        sender = WeightChannel(meeting, Endpoint("sender", 0))

        def receive(number: int, max_count: int) -> None:
            end = Endpoint("receiver", number)
            with closing(WeightChannel(sender.rendezvous, end)) as channel:
                transfer = channel.receive()
                for _ in range(max_count):
                    next(transfer)

        lends, fails = threads.submit(receive, 0, 7), threads.submit(receive, 1, 1)
        with pytest.raises(WeightTransferError, match="sender 0 failed while sending"):
            sender.send(weights(), bucket_bytes=1 << 20)
        with pytest.raises(WeightTransferError, match="receiver 0 failed while receiving"):
            lends.result()
        fails.result()
