"""Weights through a channel whose ends are threads of one process: what arrives, and what is noticed."""

import pickle
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
import torch

from torl.errors import WeightTransferError
from torl.weights.channel import WeightChannel, checksum_of
from torl.weights.rendezvous import Rendezvous

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
    threads: ThreadPoolExecutor, rendezvous: Rendezvous, receive: Callable[[WeightChannel], NamedTensors] = receive_all
) -> "Future[NamedTensors]":
    """A receiver in a thread of its own; gloo releases the interpreter lock."""

    def run() -> NamedTensors:
        channel = WeightChannel(rendezvous, 1, timeout_seconds=TIMEOUT_SECONDS)
        try:
            return receive(channel)
        finally:
            channel.close()

    return threads.submit(run)


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as executor:
        yield executor


@pytest.fixture
def sender() -> Iterator[WeightChannel]:
    channel = WeightChannel.listen("127.0.0.1", 2, timeout_seconds=TIMEOUT_SECONDS)
    yield channel
    channel.close()


@pytest.mark.parametrize("bucket_bytes", [1, 64, 1000, 1 << 20])
@pytest.mark.parametrize("checksum", [False, True])
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


@pytest.mark.parametrize("bucket_bytes", [1, 1 << 20])
def test_a_tensor_may_be_overwritten_once_the_next_is_asked_for(
    bucket_bytes: int, threads: ThreadPoolExecutor, sender: WeightChannel
) -> None:
    def one_buffer_for_all() -> Iterator[tuple[str, torch.Tensor]]:
        buffer = torch.empty(10)
        for value in range(5):
            yield str(value), buffer.fill_(value)

    receiver = start_receiver(threads, sender.rendezvous)
    sender.send(one_buffer_for_all(), bucket_bytes=bucket_bytes)
    assert [tensor.unique().tolist() for _, tensor in receiver.result()] == [[value] for value in range(5)]


def test_a_wrong_checksum_raises_on_both_sides(
    threads: ThreadPoolExecutor, sender: WeightChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[str] = []

    def receive(channel: WeightChannel) -> NamedTensors:
        given.extend(name for name, _ in channel.receive())
        return []

    receiver = start_receiver(threads, sender.rendezvous, receive)
    broadcast = sender._send_bucket

    def send_damaged(entries: list[dict[str, object]], payload: torch.Tensor, digest: int | None) -> None:
        damaged = payload.clone()
        if entries:
            damaged[5] ^= 1
        broadcast(entries, damaged, digest)

    monkeypatch.setattr(sender, "_send_bucket", send_damaged)
    with pytest.raises(WeightTransferError, match="a receiver found a wrong checksum"):
        sender.send(tensors(), checksum=True)
    with pytest.raises(WeightTransferError, match="wrong checksum for 9 tensors, the first is odd"):
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
        sender.send(tensors(), bucket_bytes=1)
    assert receiver.result() == []


def test_the_sender_is_told_when_a_receiver_fails(threads: ThreadPoolExecutor, sender: WeightChannel) -> None:
    def fail_at_once(channel: WeightChannel) -> NamedTensors:
        for _ in channel.receive():
            raise ZeroDivisionError
        return []

    receiver = start_receiver(threads, sender.rendezvous, fail_at_once)
    start = time.monotonic()
    with pytest.raises(WeightTransferError, match="rank 0 of 2 failed while sending"):
        sender.send(tensors(), bucket_bytes=1)
    assert time.monotonic() - start < TIMEOUT_SECONDS / 2  # noticed, not timed out
    with pytest.raises(ZeroDivisionError):
        receiver.result()
    with pytest.raises(WeightTransferError, match="closed"):
        sender.send(tensors())


def test_the_receiver_is_told_when_the_sender_fails(threads: ThreadPoolExecutor, sender: WeightChannel) -> None:
    def broken() -> Iterator[tuple[str, torch.Tensor]]:
        yield "first", torch.zeros(3)
        raise ZeroDivisionError

    receiver = start_receiver(threads, sender.rendezvous)
    start = time.monotonic()
    with pytest.raises(ZeroDivisionError):
        sender.send(broken(), bucket_bytes=1)
    with pytest.raises(WeightTransferError, match="rank 1 of 2 failed while receiving"):
        receiver.result()
    assert time.monotonic() - start < TIMEOUT_SECONDS / 2


def test_a_peer_that_never_comes_is_a_clear_error() -> None:
    channel = WeightChannel.listen("127.0.0.1", 2, timeout_seconds=1)
    with pytest.raises(WeightTransferError, match=r"waiting for the other ranks \(time-out 1 s\)"):
        channel.send(tensors())


def test_a_silent_sender_is_a_clear_error(threads: ThreadPoolExecutor) -> None:
    sender = WeightChannel.listen("127.0.0.1", 2, timeout_seconds=TIMEOUT_SECONDS)
    connecting = threads.submit(sender.connect)
    receiver = WeightChannel(sender.rendezvous, 1, timeout_seconds=1)
    start = time.monotonic()
    with pytest.raises(WeightTransferError, match="rank 1 of 2 failed while receiving"):
        receive_all(receiver)
    assert 0.5 < time.monotonic() - start < TIMEOUT_SECONDS / 2  # its own time-out, not the sender's
    connecting.result()
    sender.close()


def test_nobody_listens() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        rendezvous = Rendezvous("127.0.0.1", taken.getsockname()[1], 2)
        with pytest.raises(WeightTransferError, match=r"rank 1 could not reach 127\.0\.0\.1"):
            WeightChannel(rendezvous, 1, timeout_seconds=1)
        taken.listen()
        with pytest.raises(WeightTransferError, match=r"rank 0 could not listen on 127\.0\.0\.1"):
            WeightChannel(rendezvous, 0, timeout_seconds=1)


def test_what_makes_no_sense_is_refused(sender: WeightChannel) -> None:
    with pytest.raises(WeightTransferError, match="backend 'mpi' is unknown"):
        Rendezvous("127.0.0.1", 1, 2, "mpi")
    with pytest.raises(WeightTransferError, match="not 1 ranks"):
        Rendezvous("127.0.0.1", 1, 1)
    with pytest.raises(WeightTransferError, match="rank 2 is not in"):
        WeightChannel(sender.rendezvous, 2)
    with pytest.raises(WeightTransferError, match="it does not receive"):
        next(sender.receive())
    assert pickle.loads(pickle.dumps(sender.rendezvous)) == sender.rendezvous


def test_the_default_process_group_is_left_alone(threads: ThreadPoolExecutor, sender: WeightChannel) -> None:
    receiver = start_receiver(threads, sender.rendezvous)
    sender.send(tensors())
    receiver.result()
    assert not torch.distributed.is_initialized()
