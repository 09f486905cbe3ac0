"""Weights through a channel whose ends are threads of one process: arrivals, and failures that are noticed."""

import os
import pickle
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef

from ports import listening
from torl.base.errors import WeightTransferError
from torl.components.engine.vllm.worker import WeightReceiver
from torl.components.weights.bucket import checksum_of, pack, unpack
from torl.components.weights.channel import WeightChannel
from torl.components.weights.control import Control
from torl.components.weights.rendezvous import (
    Endpoint,
    Receivers,
    Rendezvous,
    TransferEnds,
    TransportName,
    choose_transport,
)
from torl.components.weights.transports import TRANSPORTS
from torl.components.weights.transports.shared_memory import SharedMemory
from torl.learner.messages import OpenChannel
from torl.learner.publishing import WeightPublisher
from torl.run.config import LearnerConfig

NamedTensors = list[tuple[str, torch.Tensor]]

# So long that on the busiest machine what is noticed comes well before what is timed out.
TIMEOUT_SECONDS = 120.0


def tensors(seed: int = 0) -> NamedTensors:
    """All that is awkward: dtypes of 1 to 8 bytes, a scalar, nothing, a transposed view, odd sizes."""
    generator = torch.Generator().manual_seed(seed)
    return [
        ("odd", torch.randn(5, 3, generator=generator)),
        ("half", torch.randn(33, 7, generator=generator).to(torch.bfloat16)),
        ("scalar", torch.tensor(3.5)),
        ("integers", torch.arange(7)),
        ("nothing", torch.zeros(0, 4)),
        ("transposed", torch.randn(4, 6, generator=generator).t()),
        ("flags", torch.tensor([True, False, True])),
        ("large", torch.randn(3000, generator=generator)),
        ("last", torch.tensor([[1.0]])),
    ]


def receive_all(channel: WeightChannel) -> NamedTensors:
    return [(name, tensor.clone()) for name, tensor in channel.receive()]


def start_receiver(
    threads: ThreadPoolExecutor,
    rendezvous: Rendezvous,
    receive: Callable[[WeightChannel], NamedTensors] = receive_all,
    number: int = 0,
) -> "Future[NamedTensors]":
    """A receiver in a separate thread; gloo releases the interpreter lock."""

    def run() -> NamedTensors:
        channel = WeightChannel(rendezvous, Endpoint("receiver", number))
        try:
            return receive(channel)
        finally:
            channel.close()

    return threads.submit(run)


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as executor:
        yield executor


@pytest.fixture(params=["gloo", "shared_memory"])
def transport(request: pytest.FixtureRequest) -> TransportName:
    """Transports that need no GPU."""
    name: TransportName = request.param
    return name


@pytest.fixture
def sender(transport: TransportName) -> Iterator[WeightChannel]:
    channel = WeightChannel.listen("127.0.0.1", 1, transport=transport, timeout_seconds=TIMEOUT_SECONDS)
    yield channel
    channel.close()


@pytest.mark.parametrize(("bucket_bytes", "checksum"), [(128, True), (1000, False), (1000, True), (1 << 20, False)])
def test_every_tensor_arrives_as_it_was(
    bucket_bytes: int, checksum: bool, threads: ThreadPoolExecutor, sender: WeightChannel
) -> None:
    expected = [tensors(0), tensors(1)]
    receiver = start_receiver(threads, sender.rendezvous, lambda channel: receive_all(channel) + receive_all(channel))
    summaries = [sender.send(sent, bucket_bytes=bucket_bytes, checksum=checksum) for sent in expected]
    received = receiver.result()
    assert [name for name, _ in received] == [name for sent in expected for name, _ in sent]
    for (_, found), (_, sent) in zip(received, expected[0] + expected[1], strict=True):
        assert found.dtype == sent.dtype
        assert torch.equal(found, sent)
    assert summaries[0].tensors == len(expected[0])
    assert summaries[0].bytes == sum(tensor.nbytes for _, tensor in expected[0])


@pytest.mark.parametrize("bucket_bytes", [16, 1 << 20])
def test_tensor_may_be_overwritten_after_next_request(
    bucket_bytes: int, threads: ThreadPoolExecutor, sender: WeightChannel
) -> None:
    def one_buffer_for_all() -> Iterator[tuple[str, torch.Tensor]]:
        buffer = torch.empty(10)
        for value in range(5):
            yield str(value), buffer.fill_(value)

    receiver = start_receiver(threads, sender.rendezvous)
    sender.send(one_buffer_for_all(), bucket_bytes=bucket_bytes)
    assert [tensor.unique().tolist() for _, tensor in receiver.result()] == [[value] for value in range(5)]


def test_no_bucket_is_in_use_when_a_transfer_ends(threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    """A transport may free them for the engine on the same GPU, before it wakes."""
    freed: list[bool] = []

    class Freeing(SharedMemory):
        def _release(self) -> None:
            storages = [StorageWeakRef(buffer.untyped_storage()) for buffer in self._buffers.values()]
            self._buffers.clear()
            freed.extend(storage.expired() for storage in storages)

    monkeypatch.setitem(TRANSPORTS, "shared_memory", Freeing)
    sender = WeightChannel.listen("127.0.0.1", 1, transport="shared_memory", timeout_seconds=TIMEOUT_SECONDS)
    receiver = start_receiver(threads, sender.rendezvous)
    sender.send(tensors(), bucket_bytes=1000)
    assert freed == [True, True]
    receiver.result()
    sender.close()


def test_a_bucket_is_not_filled_again_before_a_slow_receiver_has_taken_it(
    threads: ThreadPoolExecutor, sender: WeightChannel
) -> None:
    """There are two, each larger than what a socket holds."""
    filled_again = Event()

    def larger_than_two_buckets() -> Iterator[tuple[str, torch.Tensor]]:
        for value in range(5):
            yield str(value), torch.full((1 << 20,), float(value))
            if value == 3:
                filled_again.set()

    def receive(channel: WeightChannel) -> NamedTensors:
        channel.connect()
        filled_again.wait(0.5)  # in vain, where the sender waits as it should
        return receive_all(channel)

    receiver = start_receiver(threads, sender.rendezvous, receive)
    sender.send(larger_than_two_buckets(), bucket_bytes=4 << 20)
    assert [tensor.unique().tolist() for _, tensor in receiver.result()] == [[value] for value in range(5)]


@pytest.mark.parametrize(("bucket_bytes", "entries"), [(1 << 20, 9), (1 << 10, 20)])
def test_a_wrong_checksum_raises_on_both_sides(
    bucket_bytes: int, entries: int, threads: ThreadPoolExecutor, sender: WeightChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[str] = []

    def receive(channel: WeightChannel) -> NamedTensors:
        given.extend(name for name, _ in channel.receive())
        return []

    receiver = start_receiver(threads, sender.rendezvous, receive)
    send_header = Control.send_header

    def send_wrong_header(control: Control, header: dict[str, Any]) -> None:
        if header["entries"]:
            header["checksum"] += 1
        send_header(control, header)

    monkeypatch.setattr(Control, "send_header", send_wrong_header)
    with pytest.raises(WeightTransferError, match="a receiver found a wrong checksum"):
        sender.send(tensors(), checksum=True, bucket_bytes=bucket_bytes)
    with pytest.raises(WeightTransferError, match=f"wrong checksum for {entries} tensors, the first is odd"):
        receiver.result()
    assert given == []  # nothing of a damaged bucket reaches the model


def test_any_change_of_the_bytes_changes_the_checksum() -> None:
    payload = torch.randint(0, 256, (999,), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    digest = checksum_of(payload)
    assert checksum_of(payload.clone()) == digest
    for place in range(0, 999, 37):
        changed = payload.clone()
        changed[place] ^= 128
        assert checksum_of(changed) != digest
    swapped = payload.clone()
    swapped[:8], swapped[80:88] = payload[80:88], payload[:8]
    assert checksum_of(swapped) != digest


def test_words_that_are_swapped_over_a_long_way_change_the_checksum() -> None:
    """The sum is taken in pieces of 8 MiB; a word has another weight in each."""
    words = torch.zeros((1 << 20) + 8, dtype=torch.int64)
    words[3] = 12345
    digest = checksum_of(words.view(torch.uint8))
    words[3], words[3 + (1 << 20)] = 0, 12345
    assert checksum_of(words.view(torch.uint8)) != digest


def test_a_transfer_that_is_abandoned_closes_the_channel(threads: ThreadPoolExecutor, sender: WeightChannel) -> None:
    channels: list[WeightChannel] = []

    def take_one(channel: WeightChannel) -> NamedTensors:
        channels.append(channel)
        transfer = channel.receive()
        next(transfer)
        transfer.close()  # type: ignore[attr-defined]
        with pytest.raises(WeightTransferError, match="closed"):
            next(channel.receive())
        return []

    receiver = start_receiver(threads, sender.rendezvous, take_one)
    with pytest.raises(WeightTransferError, match="failed while sending"):
        sender.send(tensors(), bucket_bytes=16)
    assert receiver.result() == []


def test_sender_is_notified_when_a_receiver_fails(threads: ThreadPoolExecutor, sender: WeightChannel) -> None:
    def fail_at_once(channel: WeightChannel) -> NamedTensors:
        for _ in channel.receive():
            raise ZeroDivisionError
        return []

    receiver = start_receiver(threads, sender.rendezvous, fail_at_once)
    start = time.monotonic()
    with pytest.raises(WeightTransferError, match="sender 0 failed while sending"):
        sender.send(tensors(), bucket_bytes=16)
    assert time.monotonic() - start < TIMEOUT_SECONDS / 2  # noticed, not timed out
    with pytest.raises(ZeroDivisionError):
        receiver.result()
    with pytest.raises(WeightTransferError, match="closed"):
        sender.send(tensors())


def test_receiver_is_notified_when_the_sender_fails(threads: ThreadPoolExecutor, sender: WeightChannel) -> None:
    def broken() -> Iterator[tuple[str, torch.Tensor]]:
        yield "first", torch.zeros(3)
        raise ZeroDivisionError

    receiver = start_receiver(threads, sender.rendezvous)
    start = time.monotonic()
    with pytest.raises(ZeroDivisionError):
        sender.send(broken(), bucket_bytes=16)
    with pytest.raises(WeightTransferError, match="receiver 0 failed while receiving"):
        receiver.result()
    assert time.monotonic() - start < TIMEOUT_SECONDS / 2


def test_a_peer_that_never_comes_is_a_clear_error() -> None:
    channel = WeightChannel.listen("127.0.0.1", 1, timeout_seconds=1)
    with pytest.raises(WeightTransferError, match=r"waiting for the others \(timeout 1 s\)"):
        channel.send(tensors())


def test_a_silent_sender_is_a_clear_error(threads: ThreadPoolExecutor) -> None:
    sender = WeightChannel.listen("127.0.0.1", 1, timeout_seconds=TIMEOUT_SECONDS)
    connecting = threads.submit(sender.connect)
    receiver = WeightChannel(replace(sender.rendezvous, timeout_seconds=1), Endpoint("receiver", 0))
    start = time.monotonic()
    with pytest.raises(WeightTransferError, match="receiver 0 failed while receiving"):
        receive_all(receiver)
    assert 0.5 < time.monotonic() - start < TIMEOUT_SECONDS / 2  # its own timeout, not the sender's
    connecting.result()
    sender.close()


def test_engine_waits_for_weights_as_long_as_the_learner() -> None:
    settings = LearnerConfig(timeout_seconds=1)
    publisher = WeightPublisher(list, settings, rank=0, world_size=1, cuda=False)
    rendezvous = publisher.open(OpenChannel(Receivers(1), "127.0.0.1", machines=1))
    assert rendezvous is not None
    assert rendezvous.timeout_seconds == 1
    assert publisher.open(OpenChannel(Receivers(1), "127.0.0.1", machines=1)) is rendezvous
    worker = WeightReceiver()
    worker.device = torch.device("cpu")
    channel = worker._channel_to(Rendezvous(**asdict(rendezvous)), 0)
    with pytest.raises(WeightTransferError, match=r"receiver 0 failed while waiting .* \(timeout 1 s\)"):
        next(channel.receive())
    publisher.close()


def test_missing_listener_is_an_error() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        rendezvous = Rendezvous("127.0.0.1", taken.getsockname()[1], 1, timeout_seconds=1)
        with pytest.raises(WeightTransferError, match=r"receiver 0 could not reach 127\.0\.0\.1"):
            WeightChannel(rendezvous, Endpoint("receiver", 0))
        taken.listen()
        with pytest.raises(WeightTransferError, match=r"sender 0 could not listen on 127\.0\.0\.1"):
            WeightChannel(rendezvous, Endpoint("sender", 0))


def test_invalid_request_is_refused(sender: WeightChannel) -> None:
    with pytest.raises(WeightTransferError, match="transport 'mpi' is unknown: use one of gloo, shared_memory"):
        Rendezvous("127.0.0.1", 1, 2, 1, "mpi")  # type: ignore[arg-type]
    with pytest.raises(WeightTransferError, match="not 1 and 0"):
        Rendezvous("127.0.0.1", 1, 0)
    with pytest.raises(
        WeightTransferError, match="receiver 1 is not in a weight transfer of 1 senders and 1 receivers"
    ):
        WeightChannel(sender.rendezvous, Endpoint("receiver", 1))
    with pytest.raises(WeightTransferError, match="sender 0 does not receive"):
        next(sender.receive())
    assert pickle.loads(pickle.dumps(sender.rendezvous)) == sender.rendezvous


def test_the_default_process_group_is_left_alone(threads: ThreadPoolExecutor, sender: WeightChannel) -> None:
    receiver = start_receiver(threads, sender.rendezvous)
    sender.send(tensors())
    receiver.result()
    assert not torch.distributed.is_initialized()


@pytest.mark.parametrize(("senders", "receivers"), [(1, 3), (2, 1), (2, 3), (3, 2)])
def test_senders_and_receivers_may_differ_in_number(
    senders: int, receivers: int, transport: TransportName, threads: ThreadPoolExecutor
) -> None:
    first = WeightChannel.listen("127.0.0.1", receivers, senders, transport, timeout_seconds=TIMEOUT_SECONDS)
    meeting = first.rendezvous
    channels = [first] + [WeightChannel(meeting, Endpoint("sender", number)) for number in range(1, senders)]
    receiving = [start_receiver(threads, meeting, number=number) for number in range(receivers)]
    sending = [
        threads.submit(channel.send, tensors(number), bucket_bytes=1 << 10)
        for number, channel in enumerate(channels)
        if meeting.receivers_of(number)
    ]
    for number, received in enumerate(receiving):
        assert all(
            torch.equal(found, sent)
            for (_, found), (_, sent) in zip(received.result(), tensors(number % senders), strict=True)
        )
    assert len({summary.result().bytes for summary in sending}) == 1
    for channel in channels:
        channel.close()


def test_each_end_is_found_at_its_own_address(threads: ThreadPoolExecutor) -> None:
    """As on two machines: the sender at one address, and a receiver at the one from which it reaches the sender."""
    sender = WeightChannel.listen("127.0.0.2", 1, timeout_seconds=TIMEOUT_SECONDS)
    seen: list[set[str]] = []

    def receive(channel: WeightChannel) -> NamedTensors:
        received = receive_all(channel)
        seen.append({address for address, _ in listening(os.getpid()) - before})
        return received

    before = listening(os.getpid())
    receiver = start_receiver(threads, sender.rendezvous, receive)
    sender.send(tensors())
    assert len(receiver.result()) == len(tensors())
    sender.close()
    assert seen == [{"127.0.0.1", "127.0.0.2"}]


def test_pieces_that_do_not_follow_each_other_are_noticed() -> None:
    buckets = list(pack([("large", torch.arange(100))], lambda: torch.zeros(256, dtype=torch.uint8)))
    assert len(buckets) == 4
    for lost in range(1, 4):
        with pytest.raises(WeightTransferError, match=f"a piece of large at byte {256 * lost} was not sent"):
            list(unpack(buckets[:lost] + buckets[lost + 1 :]))


def test_shared_memory_is_the_offered_one_and_is_removed(threads: ThreadPoolExecutor) -> None:
    """The segments have no name, so that a segment that no process holds open does not exist."""

    def held() -> list[str]:
        links = (link for link in Path("/proc/self/fd").iterdir() if link.is_symlink())
        return [str(link) for link in links if "torl-weights" in os.readlink(link)]

    sender = WeightChannel.listen("127.0.0.1", 1, transport="shared_memory", timeout_seconds=TIMEOUT_SECONDS)
    receiver = start_receiver(threads, sender.rendezvous)
    sender.send(tensors())
    receiver.result()
    transport = sender._connected()
    assert held()
    place, other = transport._offer(0), SharedMemory(transport.control, None)
    for changes, message in [({"size": 1 << 30}, "is not the shared memory"), ({"file": 999_999}, "cannot be opened")]:
        with pytest.raises(WeightTransferError, match=message):
            other.map(place | changes)
    sender.close()
    assert held() == []


@pytest.mark.parametrize(
    ("ends", "chosen"),
    [
        (TransferEnds(2, 2, "none"), "shared_memory"),
        (TransferEnds(2, 2, "none", machines=2), "gloo"),
        (TransferEnds(2, 2, "shared"), "cuda_ipc"),
        (TransferEnds(2, 2, "shared", machines=2), "cuda_ipc"),
        (TransferEnds(2, 1, "shared"), "shared_memory"),
        (TransferEnds(2, 1, "shared", machines=2), "gloo"),
        (TransferEnds(2, 2, "separate"), "nccl"),
        (TransferEnds(2, 2, "separate", machines=2), "nccl"),
    ],
)
def test_transport_follows_from_the_two_ends(ends: TransferEnds, chosen: str) -> None:
    assert choose_transport("auto", ends) == chosen
    assert choose_transport("gloo", ends) == "gloo"
    if ends.gpus == "none":
        with pytest.raises(WeightTransferError, match="'nccl' needs a GPU"):
            choose_transport("nccl", ends)
    elif ends.gpus == "separate":
        with pytest.raises(WeightTransferError, match="'cuda_ipc' needs GPUs that learner and engine share"):
            choose_transport("cuda_ipc", ends)
    else:
        assert choose_transport("cuda_ipc", ends) == chosen
        with pytest.raises(WeightTransferError, match="do not share"):
            choose_transport("nccl", ends)
    if ends.machines > 1:
        with pytest.raises(WeightTransferError, match="works on one machine only"):
            choose_transport("shared_memory", ends)
