"""Bytes over NCCL: between GPUs that learner and engine do not share. Has not run yet: it needs two GPUs."""

from typing import Any

import torch

from torl.weights.control import SENDER, Control
from torl.weights.transports.transport import Transport


class Nccl(Transport):
    """Broadcasts between GPUs, in a communicator of its own that is kept from one transfer to the next."""

    def __init__(self, control: Control, device: torch.device | None) -> None:
        """`device` is this end's GPU; the current one when unset."""
        from torch.distributed import ProcessGroupNCCL

        super().__init__(control, device)
        self._device = device or torch.device("cuda", torch.cuda.current_device())
        options = ProcessGroupNCCL.Options()
        options._timeout = control.timeout
        self._group: Any = ProcessGroupNCCL(control.store, control.rank, control.size, options)
        self._buffers: dict[int, torch.Tensor] = {}

    def buffer(self, number: int, size: int) -> torch.Tensor:
        """On the GPU; two in turn, so that one is filled while the other is on its way."""
        if number not in self._buffers or self._buffers[number].numel() != size:
            self._buffers[number] = torch.empty(size, dtype=torch.uint8, device=self._device)
        return self._buffers[number]

    def push(self, payload: torch.Tensor) -> Any:
        """Broadcast it. To wait for the answer holds up the stream that fills the buffer again, not this process."""
        return self._group.broadcast(payload, SENDER)

    def take(self, size: int, place: dict[str, Any]) -> torch.Tensor:
        """Take part in the broadcast."""
        payload = torch.empty(size, dtype=torch.uint8, device=self._device)
        self._group.broadcast(payload, SENDER).wait()
        return payload

    def finish(self) -> None:
        """The bytes travel on streams of the GPU: what has been waited for here may still be on its way there."""
        torch.cuda.synchronize(self._device)

    def release(self) -> None:
        """Give the buffers' memory back; the communicator stays."""
        self._buffers.clear()

    def close(self) -> None:
        """Abort the communicator, which may be waiting for a peer that has gone."""
        super().close()
        self._group.abort()
