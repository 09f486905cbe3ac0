"""A channel that sends weights from one learner rank to its engine workers, in buckets.

Learner ranks send and engine workers receive; the module depends on neither. Each rank has a separate channel, so that
no single rank sends all weights. Headers and acknowledgments travel over gloo, so that a dead peer is detected
immediately and a hung peer after the timeout; the bytes travel over the transport of the rendezvous (`transports/`).

For each bucket, the sender sends a header (JSON: entries, bytes, checksum, place of the bytes) and the bytes. A last
header ends the transfer, and both sides agree on its result.
"""

import secrets
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import torch
from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

from torl.base.errors import WeightTransferError
from torl.base.runtime.processes.children import first_line
from torl.components.weights.bucket import ALIGNMENT, Entry, checksum_of, pack, unpack
from torl.components.weights.control import SENDER, Control, local_address_for
from torl.components.weights.rendezvous import Endpoint, Rendezvous, TransferSummary, TransportName
from torl.components.weights.transports import TRANSPORTS
from torl.components.weights.transports.transport import Transport

DEFAULT_BUCKET_BYTES = 256 << 20

_STORE_OWNER = Endpoint("sender", 0)  # it creates the store that all ends connect to


class WeightChannel:
    """One end of a connection for any number of transfers. Not thread-safe.

    Sender 0 owns the store that all ends connect to: it creates its channel with `listen`, which binds a free port, and
    publishes the port in `rendezvous`. The first transfer (or `connect`) waits for all peers. Any failure closes the
    channel, which the other ends notice.
    """

    def __init__(self, rendezvous: Rendezvous, end: Endpoint, *, device: torch.device | None = None) -> None:
        """Connect to the store, or create it at sender 0.

        Args:
            rendezvous: Address, pairing and timeout of the ends.
            end: This end.
            device: GPU of this end, for transports between GPUs. Defaults to the current GPU.

        Raises:
            WeightTransferError: The port is in use (sender 0), or the store was not reachable before the timeout.
        """
        if end.number not in range(rendezvous.senders if end.role == "sender" else rendezvous.receivers):
            raise WeightTransferError(
                f"{end} is not in a weight transfer of {rendezvous.senders} senders and "
                f"{rendezvous.receivers} receivers"
            )
        self.end = end
        self._sender = end.number if end.role == "sender" else rendezvous.sender_of(end.number)
        receivers = rendezvous.receivers_of(self._sender)
        self._rank = SENDER if end.role == "sender" else 1 + receivers.index(end.number)
        self._size = 1 + len(receivers)
        self._timeout = timedelta(seconds=rendezvous.timeout_seconds)
        self._device = device
        self._control: Control | None = None
        self._transport: Transport | None = None
        owner = end == _STORE_OWNER
        try:
            self._store: TCPStore | None = TCPStore(
                rendezvous.host, rendezvous.port, None, owner, self._timeout, wait_for_workers=False
            )
        except RuntimeError as error:
            doing = "listen on" if owner else "reach"
            raise WeightTransferError(
                f"weight transfer: {end} could not {doing} {rendezvous.host}:{rendezvous.port}: {first_line(error)}"
            ) from error
        self.rendezvous = replace(rendezvous, port=self._store.port)
        if owner:
            self.rendezvous = replace(self.rendezvous, name=secrets.token_hex(8))

    @classmethod
    def listen(
        cls,
        host: str,
        receivers: int,
        senders: int = 1,
        transport: TransportName = "gloo",
        *,
        timeout_seconds: float,
    ) -> "WeightChannel":
        """Create the channel of sender 0 on a free port of `host`. All other ends need its `rendezvous`."""
        return cls(Rendezvous(host, 0, receivers, senders, transport, timeout_seconds=timeout_seconds), _STORE_OWNER)

    @property
    def is_open(self) -> bool:
        """Whether neither `close` nor a failure has closed the channel."""
        return self._store is not None

    def matches(self, rendezvous: Rendezvous) -> bool:
        """Whether the channel is open and equal to a new one for `rendezvous`, except for port and name."""
        return self.is_open and replace(self.rendezvous, port=rendezvous.port, name=rendezvous.name) == rendezvous

    def connect(self) -> None:
        """Wait until this sender and all its receivers are connected. The first transfer calls this."""
        if self._store is None:
            raise WeightTransferError("this weight channel is closed")
        if self._transport is not None:
            return
        store, rendezvous = PrefixStore(f"sender-{self._sender}", self._store), self.rendezvous
        host, port = rendezvous.host, rendezvous.port
        with self._closed_on_failure("waiting for the others"):
            address = host if self.end == _STORE_OWNER else local_address_for(host, port)
            receivers = rendezvous.receivers_of(self._sender)
            nodes = [rendezvous.nodes[number] for number in receivers] if rendezvous.nodes else ()
            self._control = Control(store, self._rank, self._size, address, self._timeout, nodes)
            self._transport = TRANSPORTS[rendezvous.transport](self._control, self._device)

    def send(
        self,
        named_tensors: Iterable[tuple[str, torch.Tensor]],
        *,
        bucket_bytes: int = DEFAULT_BUCKET_BYTES,
        checksum: bool = False,
    ) -> TransferSummary:
        """Send the tensors in their dtypes to every receiver of this sender, and wait for acknowledgment.

        Each tensor is copied into a bucket before the next is requested, and may then be freed or overwritten (ZeRO-3
        gathers a few at a time). The next bucket is filled while the receivers take one.

        Args:
            named_tensors: Names and tensors.
            bucket_bytes: Size of a bucket. Two buckets are in use at a time.
            checksum: Whether receivers verify a checksum of each bucket.

        Raises:
            WeightTransferError: A receiver exited, timed out or found a wrong checksum. The channel is closed.
        """
        if self.end.role != "sender":
            raise WeightTransferError(f"{self.end} does not send weights")
        transport = self._connected()
        start = time.perf_counter()
        counted = _Counted(named_tensors)
        capacity = max(ALIGNMENT, bucket_bytes // ALIGNMENT * ALIGNMENT)
        in_flight: list[Any] = [None, None]
        number = 1

        def next_buffer() -> torch.Tensor:
            nonlocal number
            number = 1 - number
            if in_flight[number] is not None:
                in_flight[number].wait()
            return transport.buffer(number, capacity)

        wrong = False
        payload: torch.Tensor | None = None
        with self._closed_on_failure("sending"):
            for entries, payload in pack(counted, next_buffer):
                header = {"entries": entries, "checksum": checksum_of(payload) if checksum else None}
                in_flight[number] = transport.send(number, payload, header)
            for work in in_flight:
                if work is not None:
                    work.wait()
            payload = None  # a view into the last bucket, whose memory some transports free
            wrong = transport.finish()
        if wrong:
            self.close()
            raise WeightTransferError("a receiver found a wrong checksum: the engine's weights are not the learner's")
        return TransferSummary(counted.tensors, counted.bytes, time.perf_counter() - start)

    def receive(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield the tensors of one transfer, in the sender's order.

        The iterator must be exhausted to end the transfer. A tensor is a view into its bucket, which remains in memory
        as long as any of its tensors does.

        Raises:
            WeightTransferError: The sender exited or timed out, or a checksum differs. The channel is closed.
        """
        if self.end.role != "receiver":
            raise WeightTransferError(f"{self.end} does not receive weights")
        transport = self._connected()
        with self._closed_on_failure("receiving"):
            yield from unpack(_verified_buckets(transport))
            transport.finish()

    def close(self) -> None:
        """Disconnect and, at sender 0, close the port. Safe to call twice."""
        transport, control = self._transport, self._control
        self._transport = self._control = self._store = None
        if transport is not None:
            transport.close()
        if control is not None:
            control.close()

    def _connected(self) -> Transport:
        self.connect()
        assert self._transport is not None
        return self._transport

    @contextmanager
    def _closed_on_failure(self, doing: str) -> Iterator[None]:
        """Close the channel if the block raises, and name the operation in the error."""
        done = False
        try:
            yield
            done = True
        except RuntimeError as error:
            raise WeightTransferError(
                f"weight transfer: {self.end} failed while {doing} "
                f"(timeout {self._timeout.total_seconds():g} s): {first_line(error)}"
            ) from error
        finally:
            if not done:
                self.close()


def _verified_buckets(transport: Transport) -> Iterator[tuple[list[Entry], torch.Tensor]]:
    """Yield the buckets of a transfer.

    After a wrong checksum, the remaining buckets are received but not yielded, so that the sender is notified instead
    of timing out.
    """
    wrong: list[str] = []
    while (bucket := transport.receive()) is not None:
        header, payload = bucket
        if header["checksum"] is not None and checksum_of(payload) != header["checksum"]:
            wrong += [entry["name"] for entry in header["entries"]]
        if not wrong:
            yield header["entries"], payload
    if wrong:
        transport.finish(wrong=True)
        raise WeightTransferError(f"wrong checksum for {len(wrong)} tensors, the first is {wrong[0]}")


class _Counted:
    """An iterable of tensors that counts the tensors and their bytes."""

    def __init__(self, named_tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
        self._named_tensors = named_tensors
        self.tensors = 0
        self.bytes = 0

    def __iter__(self) -> Iterator[tuple[str, torch.Tensor]]:
        for name, tensor in self._named_tensors:
            self.tensors += 1
            self.bytes += tensor.nbytes
            yield name, tensor
