"""Bytes over gloo: through sockets, between any two machines."""

from typing import Any

import torch

from torl.weights.control import SENDER, Control
from torl.weights.transports.transport import Transport


class Gloo(Transport):
    """Broadcasts from CPU memory, in the group that carries the headers as well."""

    def __init__(self, control: Control, device: torch.device | None) -> None:
        """Receivers get the bytes in CPU memory, whatever `device` is."""
        super().__init__(control, device)
        self._buffers: dict[int, torch.Tensor] = {}

    def buffer(self, number: int, size: int) -> torch.Tensor:
        """Kept until the end: fresh memory costs as much as a copy."""
        if number not in self._buffers or self._buffers[number].numel() != size:
            self._buffers[number] = torch.empty(size, dtype=torch.uint8)
        return self._buffers[number]

    def push(self, payload: torch.Tensor) -> Any:
        """Broadcast it."""
        return self.control.group.broadcast(payload, SENDER)

    def take(self, size: int, place: dict[str, Any]) -> torch.Tensor:
        """Take part in the broadcast."""
        payload = torch.empty(size, dtype=torch.uint8)
        self.control.group.broadcast(payload, SENDER).wait()
        return payload
