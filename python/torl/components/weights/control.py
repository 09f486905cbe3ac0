"""The control messages of a channel: headers, acknowledgments, agreement."""

import json
import socket
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
from torch.distributed import PrefixStore  # type: ignore[attr-defined]

SENDER = 0
"""The sender's rank in the group. Its receivers follow."""


class Control:
    """A gloo group of a sender and its receivers, which detects dead peers immediately and hung peers by timeout.

    The group is independent of `torch.distributed`'s default group, because the two ends already belong to default
    groups of different worlds. All methods raise RuntimeError if a peer exited or does not respond.
    """

    def __init__(
        self,
        store: PrefixStore,
        rank: int,
        size: int,
        address: str,
        timeout: timedelta,
        nodes: Sequence[int] = (),
    ) -> None:
        """Wait for all members of the group.

        Args:
            store: Store of this group only.
            rank: Rank of this end; `SENDER` for the sender.
            size: Number of members.
            address: Address at which the other members reach this end.
            timeout: Timeout of every operation.
            nodes: Node of each receiver. Empty if no two receivers share a node.
        """
        from torch.distributed import ProcessGroupGloo

        options = ProcessGroupGloo._Options()  # type: ignore[attr-defined]
        options._timeout = timeout
        # The default device resolves the host name, which fails or selects an external address on some machines.
        options._devices = [ProcessGroupGloo.create_device(hostname=address)]
        options._threads = 2
        self.rank = rank
        self.size = size
        self.timeout = timeout
        self.nodes = nodes
        self._address = address
        self.group: Any = ProcessGroupGloo(PrefixStore("control", store), rank, size, options)
        self.store = PrefixStore("data", store)
        """Store for a group of the transport."""

    def subgroup(self, name: str, ranks: Sequence[int]) -> "Control":
        """Create a group of some members, this one included, and return it; the first of `ranks` is its sender.

        All of `ranks` must call this.
        """
        store = PrefixStore(name, self.store)
        return Control(store, ranks.index(self.rank), len(ranks), self._address, self.timeout)

    def send_header(self, header: dict[str, Any]) -> None:
        """Send a header (JSON) to all receivers."""
        text = json.dumps(header).encode()
        self.group.broadcast(torch.tensor([len(text)], dtype=torch.int64), SENDER).wait()
        self.group.broadcast(torch.frombuffer(bytearray(text), dtype=torch.uint8), SENDER).wait()

    def receive_header(self) -> dict[str, Any]:
        """Return the next header of the sender."""
        length = torch.zeros(1, dtype=torch.int64)
        self.group.broadcast(length, SENDER).wait()
        text = torch.empty(int(length), dtype=torch.uint8)
        self.group.broadcast(text, SENDER).wait()
        header: dict[str, Any] = json.loads(text.numpy().tobytes())
        return header

    def acknowledge(self) -> Any:
        """Return an object whose `wait` returns when every member has called this."""
        return self.group.allreduce(torch.zeros(1, dtype=torch.int64))

    def agree(self, wrong: bool) -> bool:
        """Wait for all members and return whether `wrong` was true at any of them."""
        flag = torch.tensor([int(wrong)], dtype=torch.int64)
        self.group.allreduce(flag).wait()  # a sum
        return bool(flag)

    def close(self) -> None:
        """Leave the group. The other members notice."""
        self.group.shutdown()


def local_address_for(host: str, port: int) -> str:
    """Return this machine's address in the network that reaches `host`. Sends nothing.

    Raises:
        OSError: `host` is unknown or unreachable.
    """
    family, kind, _, _, remote = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as probe:
        probe.connect(remote)
        address: str = probe.getsockname()[0]
        return address
