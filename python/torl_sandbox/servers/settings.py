"""Settings of servers, each of which is an option of their commands: the pool, the address and the limits."""

import argparse
import errno
import resource
import signal
import socket
import sys
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from torl_sandbox.options import MAXIMUM_MEMORY, MINIMUM_MEMORY
from torl_sandbox.pool import SandboxPool

_IDLE_CONNECTIONS = 1024
_OTHER_DESCRIPTORS = 256  # of the pool and the libraries

_Settings = TypeVar("_Settings")


def option(default: Any, help: str, *, within: tuple[int, int] | None = None, may_be_zero: bool = False) -> Any:
    """Return a field of a settings class, which is a positive number unless its default is a text or False.

    Args:
        default: Default value. None stands for a number that the program finds.
        help: Description, for the command line and for readers.
        within: Smallest and largest value.
        may_be_zero: Whether 0 is allowed.
    """
    return field(default=default, metadata={"help": help, "within": within, "may_be_zero": may_be_zero})


def add_options(parser: argparse.ArgumentParser, settings: Any, names: Container[str] | None = None) -> None:
    """Add an option for each field of a settings class, or for the named ones."""
    for each in fields(settings):
        if names is not None and each.name not in names:
            continue
        name, description = f"--{each.name.replace('_', '-')}", each.metadata["help"].replace("%", "%%")
        if each.default is False:
            parser.add_argument(name, action="store_true", help=description)
            continue
        kind = int if each.default is None else type(each.default)
        help = description + ("" if each.default is None else " (default: %(default)s)")
        parse = str if kind is str else _number(each.metadata, kind)
        unit = each.name.rpartition("_")[2].upper()
        metavar = unit if unit in ("SECONDS", "MIB", "KIB", "HOST", "PORT") else "COUNT"
        parser.add_argument(name, type=parse, default=each.default, metavar=metavar, help=help)


def _number(rules: Mapping[str, Any], kind: type) -> Callable[[str], Any]:
    def parse(text: str) -> Any:
        value = kind(text)
        if rules["within"] is not None:
            minimum, maximum = rules["within"]
            if not minimum <= value <= maximum:
                raise argparse.ArgumentTypeError(f"must be between {minimum} and {maximum}, got {text}")
        elif not (0 < value < 1e9 or (value == 0 and rules["may_be_zero"])):
            raise argparse.ArgumentTypeError(f"must be a positive number, got {text}")
        return value

    parse.__name__ = kind.__name__  # for argparse's message
    return parse


def read_options(settings: type[_Settings], options: argparse.Namespace) -> _Settings:
    """Return the settings of parsed options. Fields without an option have their default."""
    given = vars(options)
    return settings(**{each.name: given[each.name] for each in fields(settings) if each.name in given})  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class PoolSettings:
    """Settings of a server's sandbox pool."""

    workers: int | None = option(None, "Number of worker processes. The default is one per core.")
    cpu_seconds: float = option(60.0, "Maximum CPU time of a run, in seconds. A request may lower it.")
    memory_mib: int = option(
        1024,
        "Maximum memory of a run, in MiB. A request may lower it.",
        within=(MINIMUM_MEMORY >> 20, MAXIMUM_MEMORY >> 20),
    )
    output_kib: int = option(1024, "Maximum output of a run, in KiB.", may_be_zero=True)
    files_mib: int = option(32, "Maximum total size of a run's files, in MiB.", may_be_zero=True)

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

    host: str = option("127.0.0.1", "Address to listen on. All clients that reach it can use the server.")
    port: int = option(8080, "Port to listen on. 0 selects a free port.", within=(0, 65535))
    max_pending_requests: int = option(
        1024, "Maximum number of pending requests. Further requests are refused with 429."
    )
    body_mib: int = option(16, "Maximum size of a request body, in MiB. Larger ones are refused with 413.")
    max_pending_mib: int = option(
        1024, "Maximum total size of pending request bodies, in MiB. Further requests are refused with 429."
    )
    idle_timeout_seconds: float = option(
        75.0, "Idle timeout of a connection, in seconds. Also bounds sending a request and reading its response."
    )
    grace_period_seconds: float = option(
        30.0, "Grace period for pending requests after SIGTERM, in seconds.", may_be_zero=True
    )

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
class SessionSettings:
    """Limits of a session store."""

    max_sessions: int = option(256, "Maximum number of sessions. The least recently used one is evicted.")
    max_session_mib: int = option(
        1024, "Maximum total size of session states, in MiB. The least recently used session is evicted."
    )
    session_ttl_seconds: float = option(3600.0, "Time after which an unused session expires, in seconds.")


@dataclass(frozen=True, slots=True)
class McpSettings:
    """Settings of the MCP server only."""

    http: bool = option(False, "Serve streamable HTTP at /mcp instead of stdin and stdout.")
    max_returned_mib: int = option(
        4, "Maximum total size of files in a result, in MiB. Other files are listed by name.", may_be_zero=True
    )


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
