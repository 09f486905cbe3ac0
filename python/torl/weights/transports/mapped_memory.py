"""What shared memory and CUDA IPC have in common: the sender's own buffers, lent to receivers on the same machine."""

from abc import abstractmethod
from typing import Any

import torch

from torl.weights.control import Control
from torl.weights.transports.transport import Transport


class MappedMemory(Transport):
    """Receivers map a buffer once, copy each payload out of it, and acknowledge; then it is written to again.

    They copy because vLLM holds tensors until their layer is complete, which may take several buckets.
    """

    def __init__(self, control: Control, device: torch.device | None) -> None:
        """See `Transport`."""
        super().__init__(control, device)
        self._mapped: dict[Any, torch.Tensor] = {}  # receiver: the buffers that it has mapped, by their places

    def push(self, payload: torch.Tensor) -> Any:
        """Nothing moves; the answer waits until all receivers have copied it."""
        return self.control.acknowledge()

    def take(self, size: int, place: dict[str, Any]) -> torch.Tensor:
        """Copy it and say so."""
        key = tuple(place.values())
        if key not in self._mapped:
            self._mapped[key] = self.map(place)
        payload = self._mapped[key][:size].clone()
        self.wait_for_copies()
        self.control.acknowledge().wait()
        return payload

    @abstractmethod
    def map(self, place: dict[str, Any]) -> torch.Tensor:
        """The whole buffer at a place that the sender has offered.

        Raises:
            WeightTransferError: it cannot be mapped here, or is not what was offered.
        """

    def wait_for_copies(self) -> None:
        """Return when the copies that were begun have been made."""

    def close(self) -> None:
        """Unmap what was mapped."""
        self._mapped.clear()
        super().close()
