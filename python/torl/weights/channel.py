"""Weights from the learner's rank 0 to the engine's workers, in buckets, over a process group of their own.

A leaf that needs only torch: the learner sends, the engine's workers receive, and neither knows the other.
The group stands beside `torch.distributed`'s default group and never touches it, because both ends already
live in default groups of different worlds. Headers and acknowledgements travel over gloo in every case, so
that a dead peer is noticed at once and a silent one after the time-out; the tensors travel over gloo (CPU)
or NCCL (CUDA).

The order on the wire, for each bucket: length of the header (one int64), the header (JSON: names, dtypes,
shapes, offsets, checksum), the payload (bytes). An empty bucket ends the transfer, and then both sides
agree that it went well.
"""

import json
import math
import time
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any

import torch
from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

from torl.errors import WeightTransferError
from torl.processes.children import first_line
from torl.weights.rendezvous import Rendezvous, TransferSummary

SENDER = 0  # the rank that sends; every other rank is an engine worker
DEFAULT_BUCKET_BYTES = 256 << 20
DEFAULT_TIMEOUT_SECONDS = 600.0
_ALIGNMENT = 16  # bytes; tensors of any dtype may then be viewed inside a bucket
_CHECKSUM_WORDS = 1 << 20  # words summed at once: bounds the memory a checksum takes


class WeightChannel:
    """One end of the connection; it lasts for many transfers. Not thread-safe.

    Rank 0 owns the store: it makes its channel with `listen`, which binds a free port and tells which, or
    binds `rendezvous.port`. The connection to the peers is made by the first transfer (or by `connect`),
    which waits for all of them. Any failure closes the channel, which the other ends notice.
    """

    def __init__(
        self,
        rendezvous: Rendezvous,
        rank: int,
        *,
        device: torch.device | None = None,
        timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
    ) -> None:
        """Reach the store; buckets lie on `device` (default: CPU for gloo, the current CUDA device for NCCL).

        Raises:
            WeightTransferError: the port is taken (rank 0), or no sender listens there before the time-out.
        """
        if not 0 <= rank < rendezvous.world_size:
            raise WeightTransferError(f"rank {rank} is not in a weight transfer of {rendezvous.world_size} ranks")
        self.rank = rank
        self.timeout = timedelta(seconds=timeout_seconds)
        self.device = device or _default_device(rendezvous.backend)
        self._control: Any = None
        self._data: Any = None
        try:
            self._store: TCPStore | None = TCPStore(
                rendezvous.host,
                rendezvous.port,
                rendezvous.world_size,
                rank == SENDER,
                self.timeout,
                wait_for_workers=False,
            )
        except RuntimeError as error:
            doing = "listen on" if rank == SENDER else "reach"
            raise WeightTransferError(
                f"weight transfer rank {rank} could not {doing} {rendezvous.host}:{rendezvous.port}: "
                f"{first_line(error)}"
            ) from error
        self.rendezvous = Rendezvous(rendezvous.host, self._store.port, rendezvous.world_size, rendezvous.backend)

    @classmethod
    def listen(
        cls,
        host: str,
        world_size: int,
        backend: str = "gloo",
        *,
        timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
    ) -> "WeightChannel":
        """The sender's end on a free port of `host`; give the receivers its `rendezvous`."""
        return cls(Rendezvous(host, 0, world_size, backend), SENDER, timeout_seconds=timeout_seconds)

    def connect(self) -> None:
        """Wait until every rank is here. Called by the first transfer; calling it again does nothing."""
        if self._control is not None:
            return
        if self._store is None:
            raise WeightTransferError("this weight channel is closed")
        size, host = self.rendezvous.world_size, self.rendezvous.host
        try:
            self._control = _gloo_group(PrefixStore("control", self._store), self.rank, size, host, self.timeout)
            self._data = self._control
            if self.rendezvous.backend == "nccl":
                self._data = _nccl_group(PrefixStore("data", self._store), self.rank, size, self.timeout)
        except RuntimeError as error:
            raise self._failure("waiting for the other ranks", error) from error

    def send(
        self,
        named_tensors: Iterable[tuple[str, torch.Tensor]],
        *,
        bucket_bytes: int = DEFAULT_BUCKET_BYTES,
        checksum: bool = False,
    ) -> TransferSummary:
        """Broadcast the tensors, dtype kept, to every receiver and wait for their acknowledgement.

        A tensor may be freed or overwritten as soon as the next one is asked for (ZeRO-3 gathers one at a
        time): it has been copied into the bucket or sent by then. A tensor larger than `bucket_bytes`
        travels alone, without a copy if it is contiguous and on the right device.

        Raises:
            WeightTransferError: a receiver has ended, is silent, or found a wrong checksum. The channel is closed.
        """
        if self.rank != SENDER:
            raise WeightTransferError(f"rank {self.rank} receives weights; only rank {SENDER} sends them")
        self.connect()
        start = time.perf_counter()
        tensors = total = 0
        bucket = _Bucket(bucket_bytes, self.device)
        digest = checksum_of if checksum else lambda _: None
        try:
            for name, tensor in named_tensors:
                tensor = tensor.detach()
                tensors += 1
                total += tensor.nbytes
                if not bucket.fits(tensor) and bucket.entries:
                    self._send_bucket(bucket.entries, bucket.payload(), digest(bucket.payload()))
                    bucket.clear()
                if bucket.fits(tensor):
                    bucket.add(name, tensor)
                else:
                    alone = tensor.to(self.device).contiguous().reshape(-1).view(torch.uint8)
                    self._send_bucket([_entry(name, tensor, 0)], alone, digest(alone))
            if bucket.entries:
                self._send_bucket(bucket.entries, bucket.payload(), digest(bucket.payload()))
            self._send_bucket([], torch.empty(0, dtype=torch.uint8), None)
            wrong = self._agree(wrong=False)
        except RuntimeError as error:
            raise self._failure("sending", error) from error
        except BaseException:
            self.close()
            raise
        if wrong:
            self.close()
            raise WeightTransferError("a receiver found a wrong checksum: the engine's weights are not the learner's")
        return TransferSummary(tensors, total, time.perf_counter() - start)

    def receive(self) -> Iterator[tuple[str, torch.Tensor]]:
        """The tensors of one transfer, in the sender's order, on `device`.

        The transfer ends when the iterator does: take everything. A tensor is a view into its bucket and
        stays valid as long as it is held; hold it no longer than needed.

        Raises:
            WeightTransferError: the sender has ended or is silent, or a checksum differs. The channel is closed.
        """
        if self.rank == SENDER:
            raise WeightTransferError(f"rank {SENDER} sends weights; it does not receive them")
        self.connect()
        wrong: list[str] = []
        done = False
        try:
            while True:
                header = self._receive_header()
                if not header["entries"]:
                    break
                payload = torch.empty(header["bytes"], dtype=torch.uint8, device=self.device)
                if payload.numel():
                    _wait(self._data.broadcast(payload, SENDER))
                if header["checksum"] is not None and checksum_of(payload) != header["checksum"]:
                    wrong += [entry["name"] for entry in header["entries"]]
                if wrong:
                    continue  # take the rest, so that the sender is told instead of timing out
                for entry in header["entries"]:
                    yield entry["name"], _view(payload, entry)
            self._agree(wrong=bool(wrong))
            done = True
        except RuntimeError as error:
            raise self._failure("receiving", error) from error
        finally:
            if not done:
                self.close()
        if wrong:
            self.close()
            raise WeightTransferError(f"wrong checksum for {len(wrong)} tensors, the first is {wrong[0]}")

    def close(self) -> None:
        """Leave the group and, on rank 0, close the port. Safe to call twice."""
        groups = [self._data, self._control] if self._data is not self._control else [self._control]
        self._control = self._data = self._store = None
        for group in groups:
            if group is not None:
                group.abort() if group.name() == "nccl" else group.shutdown()

    def _send_bucket(self, entries: list[dict[str, Any]], payload: torch.Tensor, digest: int | None) -> None:
        text = json.dumps({"entries": entries, "bytes": payload.numel(), "checksum": digest}).encode()
        _wait(self._control.broadcast(torch.tensor([len(text)], dtype=torch.int64), SENDER))
        _wait(self._control.broadcast(torch.frombuffer(bytearray(text), dtype=torch.uint8), SENDER))
        if payload.numel():
            _wait(self._data.broadcast(payload, SENDER))

    def _receive_header(self) -> dict[str, Any]:
        length = torch.zeros(1, dtype=torch.int64)
        _wait(self._control.broadcast(length, SENDER))
        text = torch.empty(int(length), dtype=torch.uint8)
        _wait(self._control.broadcast(text, SENDER))
        header: dict[str, Any] = json.loads(text.numpy().tobytes())
        return header

    def _agree(self, wrong: bool) -> bool:
        """True if any rank says so: the sender learns what the receivers found, and all have finished."""
        flag = torch.tensor([int(wrong)], dtype=torch.int64)
        _wait(self._control.allreduce(flag))  # a sum
        return bool(flag)

    def _failure(self, doing: str, error: RuntimeError) -> WeightTransferError:
        self.close()
        return WeightTransferError(
            f"weight transfer rank {self.rank} of {self.rendezvous.world_size} failed while {doing} "
            f"(time-out {self.timeout.total_seconds():g} s): {first_line(error)}"
        )


class _Bucket:
    """A flat buffer that tensors are copied into, with what is needed to view them again."""

    def __init__(self, capacity: int, device: torch.device) -> None:
        self.capacity = capacity
        self.device = device
        self.buffer: torch.Tensor | None = None
        self.clear()

    def clear(self) -> None:
        self.entries: list[dict[str, Any]] = []
        self.used = 0

    def fits(self, tensor: torch.Tensor) -> bool:
        return self.used + tensor.nbytes <= self.capacity

    def add(self, name: str, tensor: torch.Tensor) -> None:
        if self.buffer is None:
            self.buffer = torch.zeros(self.capacity + _ALIGNMENT, dtype=torch.uint8, device=self.device)
        entry = _entry(name, tensor, self.used)
        _view(self.buffer, entry).copy_(tensor)
        self.entries.append(entry)
        self.used += math.ceil(tensor.nbytes / _ALIGNMENT) * _ALIGNMENT

    def payload(self) -> torch.Tensor:
        if self.buffer is None:
            return torch.empty(0, dtype=torch.uint8, device=self.device)
        return self.buffer[: self.used]


def checksum_of(payload: torch.Tensor) -> int:
    """A position-weighted sum of the bytes modulo 2^64: any changed, moved or swapped word shows.

    Computed on the tensor's own device; equal on CPU and CUDA, because integer sums do not round.
    """
    if payload.numel() % 8:
        payload = torch.nn.functional.pad(payload, (0, 8 - payload.numel() % 8))
    words = payload.view(torch.int64)
    total = torch.zeros((), dtype=torch.int64, device=payload.device)
    for start in range(0, words.numel(), _CHECKSUM_WORDS):
        piece = words[start : start + _CHECKSUM_WORDS]
        weights = torch.arange(start, start + piece.numel(), dtype=torch.int64, device=payload.device) * 2 + 1
        total += (piece * weights).sum()
    return int(total)


def _entry(name: str, tensor: torch.Tensor, offset: int) -> dict[str, Any]:
    dtype = str(tensor.dtype).removeprefix("torch.")
    return {"name": name, "dtype": dtype, "shape": list(tensor.shape), "offset": offset, "bytes": tensor.nbytes}


def _view(payload: torch.Tensor, entry: dict[str, Any]) -> torch.Tensor:
    piece = payload[entry["offset"] : entry["offset"] + entry["bytes"]]
    return piece.view(getattr(torch, entry["dtype"])).view(entry["shape"])


def _default_device(backend: str) -> torch.device:
    return torch.device("cuda", torch.cuda.current_device()) if backend == "nccl" else torch.device("cpu")


def _gloo_group(store: PrefixStore, rank: int, size: int, host: str, timeout: timedelta) -> Any:
    from torch.distributed import ProcessGroupGloo

    options = ProcessGroupGloo._Options()  # type: ignore[attr-defined]
    options._timeout = timeout
    if host.startswith("127.") or host == "localhost":
        # The default device resolves the host's name, which fails or picks an outside address on some machines.
        options._devices = [ProcessGroupGloo.create_device(hostname=host)]
    else:
        options._devices = [ProcessGroupGloo.create_default_device()]
    options._threads = 2
    return ProcessGroupGloo(store, rank, size, options)


def _nccl_group(store: PrefixStore, rank: int, size: int, timeout: timedelta) -> Any:
    from torch.distributed import ProcessGroupNCCL

    options = ProcessGroupNCCL.Options()
    options._timeout = timeout
    return ProcessGroupNCCL(store, rank, size, options)


def _wait(work: Any) -> None:
    work.wait()
