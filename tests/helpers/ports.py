"""Ports on which a process listens, as the kernel lists them."""

import contextlib
import os
import socket
import struct
from pathlib import Path

_LISTENING = "0A"


def listening(pid: int) -> set[tuple[str, int]]:
    """Return the IPv4 addresses and ports at which a process waits for connections."""
    own = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):  # closed in between
            own.add(os.readlink(link))
    found = set()
    for line in Path(f"/proc/{pid}/net/tcp").read_text(encoding="ascii").splitlines()[1:]:
        _, here, _, state, _, _, _, _, _, inode, *_ = line.split()
        if state == _LISTENING and f"socket:[{inode}]" in own:
            address, port = (int(part, 16) for part in here.split(":"))
            found.add((socket.inet_ntoa(struct.pack("=I", address)), port))
    return found
