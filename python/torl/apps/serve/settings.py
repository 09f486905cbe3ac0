"""How a door is set: the pool behind it, and what it holds at most."""

import resource
import socket
import sys
from dataclasses import dataclass

from torl.sandbox.pool import SandboxPool

_IDLE_CONNECTIONS = 1024
_OTHER_DESCRIPTORS = 256  # of the pool and the libraries


@dataclass(frozen=True, slots=True)
class PoolSettings:
    """The pool behind a door."""

    workers: int | None = None
    """Worker processes; one for each core when None."""
    cpu_seconds: float = 60.0
    """CPU time of a run, at most; a request may ask for less."""
    memory_mib: int = 1024
    """Memory of a run, at most; a request may ask for less."""
    output_kib: int = 1024
    """Output of a run."""
    files_mib: int = 32
    """All files of a run together."""

    def open(self) -> SandboxPool:
        """Start the pool.

        Raises:
            SandboxError: no guest, or workers that do not start.
        """
        return SandboxPool(
            self.workers,
            cpu_seconds=self.cpu_seconds,
            # Behind the CPU time, for a machine so busy that a run gets a third of a core.
            wall_seconds=max(60.0, 3 * self.cpu_seconds),
            memory_bytes=self.memory_mib << 20,
            output_bytes=self.output_kib << 10,
            files_bytes=self.files_mib << 20,
        )


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """What a door listens on and holds at once."""

    host: str = "127.0.0.1"
    port: int = 8080
    """0: any that is free."""
    max_pending_requests: int = 1024
    """Requests accepted and not answered yet; 429 beyond."""
    body_mib: int = 16
    """Body of a request; 413 beyond."""
    max_pending_mib: int = 1024
    """Bodies of all requests accepted together; 429 beyond."""
    idle_timeout_seconds: float = 75.0
    """How long a connection may rest between requests, take to send one, or to take its answer."""
    grace_period_seconds: float = 30.0
    """How long requests under way may take to end after SIGTERM."""

    def max_connections(self) -> int:
        """Connections held at once, those that ask for nothing included; raises this process's limit for them.

        Where the system does not allow as many descriptors, the pool's part is kept free: workers are replaced.
        """
        wanted = 2 * self.max_pending_requests + _IDLE_CONNECTIONS
        soft, hard = (
            sys.maxsize if limit == resource.RLIM_INFINITY else limit
            for limit in resource.getrlimit(resource.RLIMIT_NOFILE)
        )
        descriptors = min(wanted + _OTHER_DESCRIPTORS, hard)
        if soft < descriptors:
            resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        return max(min(wanted, descriptors - _OTHER_DESCRIPTORS), 1)


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """What a door holds of sessions."""

    max_sessions: int = 256
    """Sessions kept; the one unused for longest goes when there is one more."""
    max_session_mib: int = 1024
    """States of all sessions together; likewise."""
    session_ttl_seconds: float = 3600.0
    """How long a session is kept that nobody uses."""


@dataclass(frozen=True, slots=True)
class McpSettings:
    """What the MCP door has besides."""

    http: bool = False
    """Streamable HTTP instead of stdin and stdout."""
    max_returned_mib: int = 4
    """Files that one result holds; others are named."""


def bound_socket(host: str, port: int, idle_seconds: float) -> socket.socket:
    """A socket that has its address, and does not listen: the door opens when the pool is there.

    Raises:
        OSError: somebody else has the address, or there is none of that name.
    """
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Of its connections: the kernel drops one whose other side takes nothing for so long, also while it is closed.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(1000 * idle_seconds))
        listener.bind((host, port))
    except BaseException:
        listener.close()
        raise
    return listener


def address_of(listener: socket.socket) -> str:
    """The URL of a socket."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
