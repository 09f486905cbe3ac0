"""Where the ends of a weight transfer meet, who is paired with whom, and what one has moved. No torch."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Self, TypeAlias, get_args

from torl.errors import WeightTransferError

TransportName: TypeAlias = Literal["gloo", "shared_memory", "cuda_ipc", "nccl"]


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """Where learner ranks (senders) and engine workers (receivers) meet. Picklable.

    Receiver w takes its weights from sender w modulo the number of senders. Where the receivers' nodes are given, all
    of a node have one sender, so that the network carries the weights to a node once; the senders share the nodes
    evenly, in their order. A sender without receivers sends nothing.
    """

    host: str
    port: int
    receivers: int
    senders: int = 1
    transport: TransportName = "gloo"
    name: str = ""
    """Tells it from another that has had the same port."""
    nodes: tuple[int, ...] = ()
    """That of each receiver, where the bytes cross a network."""

    def __post_init__(self) -> None:
        if self.transport not in get_args(TransportName):
            known = ", ".join(get_args(TransportName))
            raise WeightTransferError(f"weight transport {self.transport!r} is unknown: use one of {known}")
        if self.receivers < 1 or self.senders < 1:
            raise WeightTransferError(
                f"weight transfer needs a sender and a receiver, not {self.senders} and {self.receivers}"
            )
        object.__setattr__(self, "nodes", tuple(self.nodes))  # a list where it has come as JSON
        if self.nodes and len(self.nodes) != self.receivers:
            raise WeightTransferError(
                f"weight transfer: {len(self.nodes)} nodes are given for {self.receivers} receivers"
            )

    def sender_of(self, receiver: int) -> int:
        """Who sends to a receiver."""
        return self._senders_of_nodes()[self.nodes[receiver]] if self.nodes else receiver % self.senders

    def receivers_of(self, sender: int) -> Sequence[int]:
        """Whom a sender sends to."""
        if not self.nodes:
            return range(sender, self.receivers, self.senders)
        senders = self._senders_of_nodes()
        return [receiver for receiver, node in enumerate(self.nodes) if senders[node] == sender]

    def _senders_of_nodes(self) -> dict[int, int]:
        there = sorted(set(self.nodes))
        return {node: place * self.senders // len(there) for place, node in enumerate(there)}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One end of a channel, as it is named in errors."""

    role: Literal["sender", "receiver"]
    number: int

    def __str__(self) -> str:
        return f"{self.role} {self.number}"


@dataclass(frozen=True, slots=True)
class TransferSummary:
    """What one transfer moved to each receiver. `seconds` runs from the first tensor to the last acknowledgement."""

    tensors: int
    bytes: int
    seconds: float

    @classmethod
    def combine(cls, summaries: Sequence["TransferSummary | None"]) -> Self:
        """Of a transfer of several senders, each of which sent the whole model to its receivers, or had none."""
        sent = [summary for summary in summaries if summary is not None]
        return cls(sent[0].tensors, sent[0].bytes, max(summary.seconds for summary in sent))


def choose_transport(
    wanted: Literal["auto"] | TransportName,
    *,
    senders: int,
    receivers: int,
    cuda: bool,
    colocated: bool,
    one_machine: bool,
) -> TransportName:
    """The way of the weights: what is `wanted`, or by where the two sides are.

    On the same GPUs, one of each on every GPU: CUDA IPC. On GPUs of their own: NCCL. Else, in one machine: shared
    memory. Across machines without GPUs: gloo.

    Raises:
        WeightTransferError: what is wanted cannot be.
    """
    if wanted in ("cuda_ipc", "nccl") and not cuda:
        raise WeightTransferError(f"learner.weight_transfer = {wanted!r} needs a GPU: use 'auto'")
    if wanted == "nccl" and colocated:
        raise WeightTransferError(
            "learner.weight_transfer = 'nccl' needs GPUs that learner and engine do not share: use 'cuda_ipc' or 'auto'"
        )
    if wanted == "shared_memory" and not one_machine:
        raise WeightTransferError("learner.weight_transfer = 'shared_memory' ends at the machine: use 'gloo' or 'auto'")
    if wanted != "auto":
        return wanted
    if cuda and not colocated:
        return "nccl"
    if cuda and senders == receivers:
        return "cuda_ipc"
    return "shared_memory" if one_machine else "gloo"
