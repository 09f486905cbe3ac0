"""What the two ends of a channel say to each other beside the weights: headers, acknowledgments, agreement."""

import json
import socket
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
from torch.distributed import PrefixStore  # type: ignore[attr-defined]

SENDER = 0  # the sender's rank in the group; its receivers come after it


class Control:
    """A gloo group of a sender and its receivers, in which a dead peer is noticed at once and a silent one in time.

    It stands beside `torch.distributed`'s default group and never touches it, because both ends already live in default
    groups of different worlds. Everything here raises RuntimeError when a peer has gone or is silent.
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
        """Wait until all have come to `store`, which is theirs alone; the others reach this end at `address`.

        `nodes`: that of each receiver, if some may share one.
        """
        from torch.distributed import ProcessGroupGloo

        options = ProcessGroupGloo._Options()  # type: ignore[attr-defined]
        options._timeout = timeout
        # The default device resolves the host's name, which fails or picks an outside address on some machines.
        options._devices = [ProcessGroupGloo.create_device(hostname=address)]
        options._threads = 2
        self.rank = rank
        self.size = size
        self.timeout = timeout
        self.nodes = nodes
        self._address = address
        self.group: Any = ProcessGroupGloo(PrefixStore("control", store), rank, size, options)
        self.store = PrefixStore("data", store)
        """For a group of the transport's own."""

    def among(self, name: str, ranks: Sequence[int]) -> "Control":
        """A group of some of the ends, this one included; the first of them sends there. Each calls it."""
        store = PrefixStore(name, self.store)
        return Control(store, ranks.index(self.rank), len(ranks), self._address, self.timeout)

    def send_header(self, header: dict[str, Any]) -> None:
        """Tell all receivers what comes next (JSON)."""
        text = json.dumps(header).encode()
        self.group.broadcast(torch.tensor([len(text)], dtype=torch.int64), SENDER).wait()
        self.group.broadcast(torch.frombuffer(bytearray(text), dtype=torch.uint8), SENDER).wait()

    def receive_header(self) -> dict[str, Any]:
        """What comes next."""
        length = torch.zeros(1, dtype=torch.int64)
        self.group.broadcast(length, SENDER).wait()
        text = torch.empty(int(length), dtype=torch.uint8)
        self.group.broadcast(text, SENDER).wait()
        header: dict[str, Any] = json.loads(text.numpy().tobytes())
        return header

    def acknowledge(self) -> Any:
        """Something whose `wait` returns when every end has come this far."""
        return self.group.allreduce(torch.zeros(1, dtype=torch.int64))

    def agree(self, wrong: bool) -> bool:
        """True if any end says so: the sender learns what the receivers found, and all have finished."""
        flag = torch.tensor([int(wrong)], dtype=torch.int64)
        self.group.allreduce(flag).wait()  # a sum
        return bool(flag)

    def close(self) -> None:
        """Leave the group, which the others notice."""
        self.group.shutdown()


def local_address_for(host: str, port: int) -> str:
    """This machine's address in the network in which it reaches `host`. Sends nothing.

    Raises:
        OSError: `host` is unknown, or there is no way to it.
    """
    family, kind, _, _, there = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as probe:
        probe.connect(there)
        address: str = probe.getsockname()[0]
        return address
