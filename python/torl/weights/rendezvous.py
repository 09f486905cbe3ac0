"""Where the two ends of a weight transfer meet, and what one has moved. No torch."""

from dataclasses import dataclass

from torl.errors import WeightTransferError


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """Where sender and receivers meet. Picklable; `world_size` counts the sender and every engine worker."""

    host: str
    port: int
    world_size: int
    backend: str = "gloo"  # what carries the tensors: "gloo" or "nccl"

    def __post_init__(self) -> None:
        if self.backend not in ("gloo", "nccl"):
            raise WeightTransferError(f"weight transfer backend {self.backend!r} is unknown: use 'gloo' or 'nccl'")
        if self.world_size < 2:
            raise WeightTransferError(f"weight transfer needs a sender and a receiver, not {self.world_size} ranks")


@dataclass(frozen=True, slots=True)
class TransferSummary:
    """What one transfer moved. `seconds` runs from the first tensor to the last acknowledgement."""

    tensors: int
    bytes: int
    seconds: float
