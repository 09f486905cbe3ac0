"""Transport over NCCL, for learner and engine on separate GPUs. Not run yet: requires two GPUs."""

from typing import Any

import torch

from torl.components.weights.control import SENDER, Control
from torl.components.weights.transports.transport import Transport


class Nccl(Transport):
    """Broadcasts between GPUs. The communicator is separate from others and kept from one transfer to the next."""

    def __init__(self, control: Control, device: torch.device | None) -> None:
        from torch.distributed import ProcessGroupNCCL

        super().__init__(control, device)
        self._device = device or torch.device("cuda", torch.cuda.current_device())
        options = ProcessGroupNCCL.Options()
        options._timeout = control.timeout
        self._group: Any = ProcessGroupNCCL(control.store, control.rank, control.size, options)
        self._buffers: dict[int, torch.Tensor] = {}

    def buffer(self, number: int, size: int) -> torch.Tensor:
        if number not in self._buffers or self._buffers[number].numel() != size:
            self._buffers[number] = torch.empty(size, dtype=torch.uint8, device=self._device)
        return self._buffers[number]

    def close(self) -> None:
        """Abort the communicator, which may be waiting for a peer that has exited."""
        super().close()
        self._group.abort()

    def _push(self, payload: torch.Tensor) -> Any:
        # The `wait` of a broadcast blocks the stream that fills the buffer again, not this process.
        return self._group.broadcast(payload, SENDER)

    def _take(self, size: int, place: dict[str, Any]) -> torch.Tensor:
        payload = torch.empty(size, dtype=torch.uint8, device=self._device)
        self._group.broadcast(payload, SENDER).wait()
        return payload

    def _complete(self) -> None:
        torch.cuda.synchronize(self._device)  # the broadcasts run on streams of the GPU

    def _release(self) -> None:
        self._buffers.clear()
