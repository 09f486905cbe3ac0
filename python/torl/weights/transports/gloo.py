"""Bytes over gloo: through sockets, between any two machines; to a node once, and through its memory from there."""

from typing import Any

import torch

from torl.weights.control import SENDER, Control
from torl.weights.transports.shared_memory import SharedMemory
from torl.weights.transports.transport import Transport


class Gloo(Transport):
    """Broadcasts from CPU memory to one receiver of each node, which lends what comes to the others of its node."""

    def __init__(self, control: Control, device: torch.device | None) -> None:
        """Receivers get the bytes in CPU memory, whatever `device` is."""
        super().__init__(control, device)
        neighbors = [rank for rank in range(1, control.size) if self._node(rank) == self._node(control.rank)]
        leads = sorted({self._node(rank): rank for rank in range(control.size - 1, SENDER, -1)}.values())
        self._network = self._memory = None
        if control.rank in (SENDER, *leads):
            everyone = len(leads) == control.size - 1
            self._network = control if everyone else control.among("network", [SENDER, *leads])
        if len(neighbors) > 1:
            self._memory = SharedMemory(control.among(f"node-{neighbors[0]}", neighbors), device)
        self._buffers: dict[int, torch.Tensor] = {}
        self._lent: list[Any] = [None, None]
        self._number = 1

    def buffer(self, number: int, size: int) -> torch.Tensor:
        """Kept until the end: fresh memory costs as much as a copy."""
        if number not in self._buffers or self._buffers[number].numel() != size:
            self._buffers[number] = torch.empty(size, dtype=torch.uint8)
        return self._buffers[number]

    def offer(self, number: int, size: int) -> dict[str, Any]:
        """How large the buffer is, for those that lend one."""
        return {"capacity": self._buffers[number].numel()}

    def push(self, payload: torch.Tensor) -> Any:
        """Broadcast it."""
        assert self._network is not None
        return self._network.group.broadcast(payload, SENDER)

    def take(self, size: int, place: dict[str, Any]) -> torch.Tensor:
        """From the sender, or from the receiver of this node that has it from there."""
        if self._network is None:
            assert self._memory is not None
            return self._memory.take(size, self._memory.control.receive_header())
        if self._memory is None:
            payload = torch.empty(size, dtype=torch.uint8)
            self._network.group.broadcast(payload, SENDER).wait()
            return payload
        return self._take_and_lend(self._network, self._memory, size, place["capacity"])

    def _take_and_lend(self, network: Control, memory: SharedMemory, size: int, capacity: int) -> torch.Tensor:
        """Into one of two buffers, while the neighbors copy the other."""
        number = self._number = 1 - self._number
        if self._lent[number] is not None:
            self._lent[number].wait()
        payload = memory.buffer(number, capacity)[:size]
        network.group.broadcast(payload, SENDER).wait()
        memory.control.send_header(memory.offer(number, size))
        self._lent[number] = memory.push(payload)
        return payload.clone()

    def finish(self) -> None:
        """The neighbors have copied what was lent to them."""
        for lent in self._lent:
            if lent is not None:
                lent.wait()
        self._lent = [None, None]

    def close(self) -> None:
        """Leave the groups, which the neighbors notice."""
        super().close()
        if self._memory is not None:
            self._memory.close()
            self._memory.control.close()
        if self._network is not None and self._network is not self.control:
            self._network.close()

    def _node(self, rank: int) -> int | None:
        """That of a receiver; its own if the nodes are unknown. The sender's is none: it sends to its neighbors too."""
        if rank == SENDER:
            return None
        return self.control.nodes[rank - 1] if self.control.nodes else rank
