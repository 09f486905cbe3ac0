"""Transports by process groups of torch: gloo and NCCL.

Gloo sends through sockets to one receiver of each node, and through shared memory to its neighbors. NCCL is for learner
and engine on separate GPUs; it has not run yet, because it requires two GPUs.
"""

from typing import Any

import torch

from torl.components.weights.control import SENDER, Control
from torl.components.weights.transports.shared_memory import SharedMemory
from torl.components.weights.transports.transport import Transport


class Gloo(Transport):
    """Broadcasts from CPU memory to a leader on each node, which shares the bytes with the other receivers there.

    Payloads arrive in CPU memory.
    """

    def __init__(self, control: Control, device: torch.device | None) -> None:
        super().__init__(control, device)
        neighbors = [rank for rank in range(1, control.size) if self._node(rank) == self._node(control.rank)]
        leaders = sorted({self._node(rank): rank for rank in range(control.size - 1, SENDER, -1)}.values())
        self._network = self._memory = None
        if control.rank in (SENDER, *leaders):
            everyone = len(leaders) == control.size - 1
            self._network = control if everyone else control.subgroup("network", [SENDER, *leaders])
        if len(neighbors) > 1:
            self._memory = SharedMemory(control.subgroup(f"node-{neighbors[0]}", neighbors), device)
        self._buffers: dict[int, torch.Tensor] = {}
        self._shared: list[Any] = [None, None]  # payloads that neighbors may still be copying
        self._number = 1

    def buffer(self, number: int, size: int) -> torch.Tensor:
        # Kept until the end: allocating memory costs as much as a copy.
        if number not in self._buffers or self._buffers[number].numel() != size:
            self._buffers[number] = torch.empty(size, dtype=torch.uint8)
        return self._buffers[number]

    def close(self) -> None:
        """Leave the groups. The neighbors notice."""
        super().close()
        if self._memory is not None:
            self._memory.close()
            self._memory.control.close()
        if self._network is not None and self._network is not self.control:
            self._network.close()

    def _offer(self, number: int) -> dict[str, Any]:
        return {"capacity": self._buffers[number].numel()}  # for the leaders' own buffers

    def _push(self, payload: torch.Tensor) -> Any:
        assert self._network is not None
        return self._network.group.broadcast(payload, SENDER)

    def _take(self, size: int, place: dict[str, Any]) -> torch.Tensor:
        if self._network is None:
            assert self._memory is not None
            bucket = self._memory.receive()
            assert bucket is not None
            return bucket[1]
        if self._memory is None:
            payload = torch.empty(size, dtype=torch.uint8)
            self._network.group.broadcast(payload, SENDER).wait()
            return payload
        return self._take_and_share(self._network, self._memory, size, place["capacity"])

    def _take_and_share(self, network: Control, memory: SharedMemory, size: int, capacity: int) -> torch.Tensor:
        """Receive into one of two buffers, while the neighbors copy the other."""
        number = self._number = 1 - self._number
        if self._shared[number] is not None:
            self._shared[number].wait()
        payload = memory.buffer(number, capacity)[:size]
        network.group.broadcast(payload, SENDER).wait()
        self._shared[number] = memory.send(number, payload, {})
        return payload.clone()

    def _complete(self) -> None:
        for copies in self._shared:
            if copies is not None:
                copies.wait()
        self._shared = [None, None]

    def _node(self, rank: int) -> int | None:
        """Return the node of a receiver, its rank if nodes are unknown, and None for the sender.

        The sender has no node here because it sends to the receivers of its own machine as to any other.
        """
        if rank == SENDER:
            return None
        return self.control.nodes[rank - 1] if self.control.nodes else rank


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
