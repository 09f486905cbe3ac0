"""Weights from one learner rank to the engine workers that are paired with it, in buckets.

A leaf that needs only torch: ranks send, the engine's workers receive, and neither knows the other. Every rank has a
channel of its own, so that no weights pass through one rank alone. Headers and acknowledgments travel over gloo in
every case, so that a dead peer is noticed at once and a silent one after the time-out; the bytes travel as the
rendezvous says (`transports/`).

The order on the wire, for each bucket: a header (JSON: entries, bytes, checksum, where the bytes are), then the bytes.
A header without entries ends the transfer, and then both sides agree that it went well.
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

from torl.errors import WeightTransferError
from torl.runtime.processes.children import first_line
from torl.weights.bucket import ALIGNMENT, Entry, checksum_of, pack, unpack
from torl.weights.control import SENDER, Control, local_address_for
from torl.weights.rendezvous import Endpoint, Rendezvous, TransferSummary, TransportName
from torl.weights.transports import TRANSPORTS
from torl.weights.transports.transport import Transport

DEFAULT_BUCKET_BYTES = 256 << 20
DEFAULT_TIMEOUT_SECONDS = 600.0
STORE_OWNER = Endpoint("sender", 0)
"""Of the store at which all meet."""


class WeightChannel:
    """One end of a connection; it lasts for many transfers. Not thread-safe.

    Sender 0 owns the store at which all meet: it makes its channel with `listen`, which binds a free port and tells
    which. The connection to the peers is made by the first transfer (or by `connect`), which waits for all of them. Any
    failure closes the channel, which the other ends notice.
    """

    def __init__(
        self,
        rendezvous: Rendezvous,
        end: Endpoint,
        *,
        device: torch.device | None = None,
        timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
    ) -> None:
        """Reach the store. `device`: the GPU of this end, for transports between GPUs (default: the current one).

        Raises:
            WeightTransferError: the port is taken (sender 0), or nobody listens there before the time-out.
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
        self._timeout = timedelta(seconds=timeout_seconds)
        self._device = device
        self._control: Control | None = None
        self._transport: Transport | None = None
        owner = end == STORE_OWNER
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
        timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
    ) -> "WeightChannel":
        """Sender 0's end on a free port of `host`; give everyone its `rendezvous`."""
        meeting = Rendezvous(host, 0, receivers, senders, transport)
        return cls(meeting, STORE_OWNER, timeout_seconds=timeout_seconds)

    @property
    def is_open(self) -> bool:
        """Whether it has not been closed, by `close` or by a failure."""
        return self._store is not None

    def matches(self, wanted: Rendezvous) -> bool:
        """Whether it is open and is what would be made for `wanted`, which has no port and no name yet."""
        return self.is_open and replace(self.rendezvous, port=wanted.port, name=wanted.name) == wanted

    def connect(self) -> None:
        """Wait until this sender and all its receivers are here; the first transfer does so by itself."""
        if self._store is None:
            raise WeightTransferError("this weight channel is closed")
        if self._transport is not None:
            return
        store, meeting = PrefixStore(f"sender-{self._sender}", self._store), self.rendezvous
        with self._failing("waiting for the others"):
            address = meeting.host if self.end == STORE_OWNER else local_address_for(meeting.host, meeting.port)
            nodes = [meeting.nodes[number] for number in meeting.receivers_of(self._sender)] if meeting.nodes else ()
            control = self._control = Control(store, self._rank, self._size, address, self._timeout, nodes)
            self._transport = TRANSPORTS[self.rendezvous.transport](control, self._device)

    def send(
        self,
        named_tensors: Iterable[tuple[str, torch.Tensor]],
        *,
        bucket_bytes: int = DEFAULT_BUCKET_BYTES,
        checksum: bool = False,
    ) -> TransferSummary:
        """Send the tensors, dtype kept, to every receiver of this sender and wait for their acknowledgment.

        A tensor may be freed or overwritten as soon as the next one is asked for (ZeRO-3 gathers a few at a time): it
        has been copied into a bucket by then. One bucket is filled while the receivers take another.

        Raises:
            WeightTransferError: a receiver has ended, is silent, or found a wrong checksum. The channel is closed.
        """
        if self.end.role != "sender":
            raise WeightTransferError(f"{self.end} does not send weights")
        control, transport = self._connected()
        start = time.perf_counter()
        counted = _Counted(named_tensors)
        capacity = max(ALIGNMENT, bucket_bytes // ALIGNMENT * ALIGNMENT)
        under_way: list[Any] = [None, None]
        number = 1

        def next_buffer() -> torch.Tensor:
            nonlocal number
            number = 1 - number
            if under_way[number] is not None:
                under_way[number].wait()
            return transport.buffer(number, capacity)

        wrong = False
        with self._failing("sending"):
            for entries, payload in pack(counted, next_buffer):
                digest = checksum_of(payload) if checksum else None
                place = transport.offer(number, payload.numel())
                self._send_header(control, entries, payload.numel(), digest, place)
                under_way[number] = transport.push(payload)
            for work in under_way:
                if work is not None:
                    work.wait()
            self._send_header(control, [], 0, None, {})
            transport.finish()
            wrong = control.agree(wrong=False)
            transport.release()
        if wrong:
            self.close()
            raise WeightTransferError("a receiver found a wrong checksum: the engine's weights are not the learner's")
        return TransferSummary(counted.tensors, counted.bytes, time.perf_counter() - start)

    def receive(self) -> Iterator[tuple[str, torch.Tensor]]:
        """The tensors of one transfer, in the sender's order.

        The transfer ends when the iterator does: take everything. A tensor is a view into its bucket and stays valid as
        long as it is held; hold it no longer than needed.

        Raises:
            WeightTransferError: the sender has ended or is silent, or a checksum differs. The channel is closed.
        """
        if self.end.role != "receiver":
            raise WeightTransferError(f"{self.end} does not receive weights")
        control, transport = self._connected()
        with self._failing("receiving"):
            yield from unpack(self._buckets(control, transport))
            transport.finish()
            control.agree(wrong=False)
            transport.release()

    def close(self) -> None:
        """Leave the group and, at sender 0, close the port. Safe to call twice."""
        transport, control = self._transport, self._control
        self._transport = self._control = self._store = None
        if transport is not None:
            transport.close()
        if control is not None:
            control.close()

    def _connected(self) -> tuple[Control, Transport]:
        self.connect()
        assert self._control is not None
        assert self._transport is not None
        return self._control, self._transport

    def _buckets(self, control: Control, transport: Transport) -> Iterator[tuple[list[Entry], torch.Tensor]]:
        """Until the end of the transfer. After a wrong checksum nothing is handed on, but the rest is taken, so that
        the sender is told instead of timing out."""
        wrong: list[str] = []
        while (header := control.receive_header())["entries"]:
            payload = transport.take(header["bytes"], header["place"])
            if header["checksum"] is not None and checksum_of(payload) != header["checksum"]:
                wrong += [entry["name"] for entry in header["entries"]]
            if not wrong:
                yield header["entries"], payload
        if wrong:
            transport.finish()
            control.agree(wrong=True)
            raise WeightTransferError(f"wrong checksum for {len(wrong)} tensors, the first is {wrong[0]}")

    def _send_header(
        self, control: Control, entries: list[Entry], size: int, digest: int | None, place: dict[str, Any]
    ) -> None:
        control.send_header({"entries": entries, "bytes": size, "checksum": digest, "place": place})

    @contextmanager
    def _failing(self, doing: str) -> Iterator[None]:
        """Close the channel if the block does not end well, and say what failed."""
        done = False
        try:
            yield
            done = True
        except RuntimeError as error:
            raise WeightTransferError(
                f"weight transfer: {self.end} failed while {doing} "
                f"(time-out {self._timeout.total_seconds():g} s): {first_line(error)}"
            ) from error
        finally:
            if not done:
                self.close()


class _Counted:
    """An iterable of tensors that counts them and their bytes."""

    def __init__(self, named_tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
        self._named_tensors = named_tensors
        self.tensors = 0
        self.bytes = 0

    def __iter__(self) -> Iterator[tuple[str, torch.Tensor]]:
        for name, tensor in self._named_tensors:
            self.tensors += 1
            self.bytes += tensor.nbytes
            yield name, tensor
