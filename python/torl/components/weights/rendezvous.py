"""Values that describe a weight transfer: its two ends, its pairing, its transport, its result. No torch."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Self, TypeAlias, get_args

from torl.base.errors import WeightTransferError

TransportName: TypeAlias = Literal["gloo", "shared_memory", "cuda_ipc", "nccl"]
GpuUse: TypeAlias = Literal["none", "shared", "separate"]
"""GPUs of learner and engine: no GPUs, the same ones, or different ones."""


@dataclass(frozen=True, slots=True)
class Receivers:
    """The engine workers that receive weights."""

    count: int
    nodes: tuple[int, ...] = ()
    """Node of each worker in a cluster, so that a network carries the weights to a node once. Empty if unknown."""
    changed: bool = False
    """Whether the workers differ from those of the last transfer. All connections are then made anew."""
    share_gpus: bool = True
    """Whether the workers run on the GPUs of the learner, if there are any."""


@dataclass(frozen=True, slots=True)
class TransferEnds:
    """The two ends of a weight transfer, and the hardware between them."""

    senders: int
    receivers: int
    gpus: GpuUse
    machines: int = 1
    """Number of machines that both ends run on together."""


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """The address at which learner ranks (senders) and engine workers (receivers) meet, and the terms. Picklable.

    Receiver w takes its weights from sender w modulo the number of senders. If `nodes` is set, all receivers of a node
    have the same sender, so that the network carries the weights to a node once; nodes are spread evenly over the
    senders, in order. A sender without receivers sends nothing.
    """

    host: str
    port: int
    receivers: int
    senders: int = 1
    transport: TransportName = "gloo"
    name: str = ""
    """Random name that distinguishes this rendezvous from an earlier one on the same port."""
    nodes: tuple[int, ...] = ()
    """Node of each receiver, if a network carries the weights."""
    timeout_seconds: float = 600.0
    """Timeout of every operation of an end with its peers, in seconds. It includes the time in which a peer is not
    ready, such as an engine that finishes its turns first."""

    def __post_init__(self) -> None:
        if self.transport not in get_args(TransportName):
            known = ", ".join(get_args(TransportName))
            raise WeightTransferError(f"weight transport {self.transport!r} is unknown: use one of {known}")
        if self.receivers < 1 or self.senders < 1:
            raise WeightTransferError(
                f"weight transfer needs a sender and a receiver, not {self.senders} and {self.receivers}"
            )
        object.__setattr__(self, "nodes", tuple(self.nodes))  # JSON makes it a list
        if self.nodes and len(self.nodes) != self.receivers:
            raise WeightTransferError(
                f"weight transfer: {len(self.nodes)} nodes are given for {self.receivers} receivers"
            )

    def sender_of(self, receiver: int) -> int:
        """Return the number of a receiver's sender."""
        return self._senders_of_nodes()[self.nodes[receiver]] if self.nodes else receiver % self.senders

    def receivers_of(self, sender: int) -> Sequence[int]:
        """Return the numbers of a sender's receivers."""
        if not self.nodes:
            return range(sender, self.receivers, self.senders)
        senders = self._senders_of_nodes()
        return [receiver for receiver, node in enumerate(self.nodes) if senders[node] == sender]

    def _senders_of_nodes(self) -> dict[int, int]:
        nodes = sorted(set(self.nodes))
        return {node: index * self.senders // len(nodes) for index, node in enumerate(nodes)}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One end of a channel, as errors name it."""

    role: Literal["sender", "receiver"]
    number: int

    def __str__(self) -> str:
        return f"{self.role} {self.number}"


@dataclass(frozen=True, slots=True)
class TransferSummary:
    """The size and duration of a transfer to each receiver."""

    tensors: int
    bytes: int
    seconds: float
    """Time from the first tensor to the last acknowledgment."""

    @classmethod
    def combine(cls, summaries: Sequence["TransferSummary | None"]) -> Self:
        """Return the summary of all senders: each sent the whole model, or None if it has no receivers."""
        sent = [summary for summary in summaries if summary is not None]
        return cls(sent[0].tensors, sent[0].bytes, max(summary.seconds for summary in sent))


def choose_transport(requested: Literal["auto"] | TransportName, ends: TransferEnds) -> TransportName:
    """Return the transport between `ends`: the `requested` one, or the fastest possible for "auto".

    On shared GPUs with as many senders as receivers: CUDA IPC. On separate GPUs: NCCL. Otherwise shared memory on one
    machine, and gloo between machines, also while a restart leaves too few receivers for a requested CUDA IPC.

    Raises:
        WeightTransferError: The requested transport cannot connect `ends`.
    """
    if requested in ("cuda_ipc", "nccl") and ends.gpus == "none":
        raise WeightTransferError(f"learner.weight_transfer = {requested!r} needs a GPU: use 'auto'")
    if requested == "nccl" and ends.gpus == "shared":
        raise WeightTransferError(
            "learner.weight_transfer = 'nccl' needs GPUs that learner and engine do not share: use 'cuda_ipc' or 'auto'"
        )
    if requested == "cuda_ipc" and ends.gpus == "separate":
        raise WeightTransferError(
            "learner.weight_transfer = 'cuda_ipc' needs GPUs that learner and engine share: use 'nccl' or 'auto'"
        )
    if requested == "shared_memory" and ends.machines > 1:
        raise WeightTransferError(
            "learner.weight_transfer = 'shared_memory' works on one machine only: use 'gloo' or 'auto'"
        )
    if requested != "auto" and not (requested == "cuda_ipc" and ends.senders != ends.receivers):
        return requested
    if ends.gpus == "separate":
        return "nccl"
    if ends.gpus == "shared" and ends.senders == ends.receivers:
        return "cuda_ipc"
    return "shared_memory" if ends.machines == 1 else "gloo"
