"""Settings of servers: the pool, the address and the limits."""

import errno
import resource
import signal
import socket
import sys
from dataclasses import dataclass

from torl_sandbox.pool import SandboxPool

_IDLE_CONNECTIONS = 1024
_OTHER_DESCRIPTORS = 256  # of the pool and the libraries


@dataclass(frozen=True, slots=True)
class PoolSettings:
    """Settings of a server's sandbox pool."""

    workers: int | None = None
    """Number of worker processes. The default is one per core."""
    cpu_seconds: float = 60.0
    """Maximum CPU time of a run, in seconds. A request may lower it."""
    memory_mib: int = 1024
    """Maximum memory of a run, in MiB. A request may lower it."""
    output_kib: int = 1024
    """Maximum output of a run, in KiB."""
    files_mib: int = 32
    """Maximum total size of a run's files, in MiB."""

    def open(self) -> SandboxPool:
        """Start the pool.

        Raises:
            SandboxError: The guest is missing, or the workers do not start.
        """
        return SandboxPool(
            self.workers,
            cpu_seconds=self.cpu_seconds,
            # For a machine so busy that a run gets a third of a core.
            wall_seconds=max(60.0, 3 * self.cpu_seconds),
            memory_bytes=self.memory_mib << 20,
            output_bytes=self.output_kib << 10,
            files_bytes=self.files_mib << 20,
        )


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Address and limits of a server."""

    host: str = "127.0.0.1"
    """Address to listen on. All clients that reach it can use the server."""
    port: int = 8080
    """Port to listen on. 0 selects a free port."""
    max_pending_requests: int = 1024
    """Maximum number of pending requests. Further requests are refused with 429."""
    body_mib: int = 16
    """Maximum size of a request body, in MiB. Larger ones are refused with 413."""
    max_pending_mib: int = 1024
    """Maximum total size of pending request bodies, in MiB. Further requests are refused with 429."""
    idle_timeout_seconds: float = 75.0
    """Idle timeout of a connection, in seconds. Also bounds sending a request and reading its response."""
    grace_period_seconds: float = 30.0
    """Grace period for pending requests after SIGTERM, in seconds."""

    def max_connections(self) -> int:
        """Return the maximum number of connections, including idle ones, and raise the limit on file descriptors.

        If the system does not allow enough descriptors, the pool keeps its share, because it replaces workers.
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
class McpSettings:
    """Settings of the MCP server only."""

    http: bool = False
    """Serve streamable HTTP at /mcp instead of stdin and stdout."""
    max_returned_mib: int = 4
    """Maximum total size of files in a result, in MiB. Other files are listed by name."""


def exit_at_sigterm() -> None:
    """Make SIGTERM end the process with status 0: until a server installs its own handler, and after it has ended."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))


def bound_socket(host: str, port: int, idle_timeout_seconds: float) -> socket.socket:
    """Return a bound socket that does not listen yet, so that an unavailable address fails before the pool starts.

    Raises:
        OSError: The address is in use or invalid. The message has it.
    """
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Inherited by its connections: a small response is not held back, and the kernel drops a connection whose peer
        # receives nothing for this time.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(1000 * idle_timeout_seconds))
        listener.bind((host, port))
    except (OSError, OverflowError, ValueError) as error:
        listener.close()
        is_used = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
        remedy = "; --port 0 selects a free port" if is_used else ""
        raise OSError(f"cannot listen on {host}:{port}: {error}{remedy}") from error
    return listener


def address_of(listener: socket.socket) -> str:
    """Return the URL of a socket."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
