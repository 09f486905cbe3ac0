"""The doors on the command line: `serve`, `mcp` and `openenv` of `python -m torl.sandbox`."""

import argparse
import dataclasses
import importlib
import signal
import sys
from collections.abc import Callable
from typing import Any

from torl.apps.serve.settings import McpSettings, PoolSettings, ServerSettings, SessionSettings
from torl.errors import SandboxError

# By command: the module that has `serve`, what it takes, and the extra that brings what it is built on.
SERVERS: dict[str, tuple[str, tuple[Any, ...], str]] = {
    "serve": ("torl.apps.serve.fusion", (PoolSettings, ServerSettings), "serve"),
    "mcp": ("torl.apps.serve.mcp_server", (PoolSettings, ServerSettings, SessionSettings, McpSettings), "mcp"),
    "openenv": ("torl.apps.serve.openenv_server", (PoolSettings, ServerSettings, SessionSettings), "openenv"),
}
_ABOUT = {
    "serve": "serve SandboxFusion's HTTP interface",
    "mcp": "serve the tool run_python of the Model Context Protocol, on stdin and stdout or over HTTP",
    "openenv": "serve the coding environment of OpenEnv, over WebSocket and HTTP",
}

_OPTIONS = {
    "workers": "worker processes (default: one for each core)",
    "run_seconds": "CPU seconds of a run, at most",
    "memory_mib": "memory of a run, at most, in MiB",
    "output_kib": "output of a run, in KiB",
    "files_mib": "all files of a run together, in MiB",
    "host": "address to listen on; whoever reaches it can run code in the sandbox",
    "port": "port to listen on; 0: any that is free",
    "queue": "requests accepted and not answered yet; 429 beyond",
    "body_mib": "body of a request, in MiB; 413 beyond",
    "max_pending_mib": "bodies of all accepted requests together, in MiB; 429 beyond",
    "idle_seconds": "how long a connection may rest, send a request, or take its answer",
    "grace_period_seconds": "how long requests under way may take to end after SIGTERM",
    "http": "streamable HTTP, at /mcp, instead of stdin and stdout",
    "sessions": "sessions kept; the one unused for longest goes when there is one more",
    "sessions_mib": "states of all sessions together, in MiB; likewise",
    "session_seconds": "how long a session is kept that nobody uses",
    "max_returned_mib": "files that one result holds, in MiB; others are named",
}


def add_server_commands(commands: Any) -> None:
    """Add the commands to the parser's."""
    for name, (_, kinds, _) in SERVERS.items():
        parser = commands.add_parser(name, help=_ABOUT[name])
        for settings in kinds:
            add_options(parser, settings)


def add_options(parser: argparse.ArgumentParser, settings: Any) -> None:
    """An option for each field of the settings."""
    for field in dataclasses.fields(settings):
        name = f"--{field.name.replace('_', '-')}"
        if field.default is False:
            parser.add_argument(name, action="store_true", help=_OPTIONS[field.name])
            continue
        kind = int if field.default is None else type(field.default)
        text = _OPTIONS[field.name] + ("" if field.default is None else " (default %(default)s)")
        parser.add_argument(name, type=_positive(kind), default=field.default, help=text)


def _positive(kind: type) -> Any:
    def read(text: str) -> Any:
        value = kind(text)
        if kind is not str and not 0 <= value < 1e9:
            raise argparse.ArgumentTypeError(f"must be a number that is not negative, not {text}")
        return value

    return read


def run_server(options: argparse.Namespace, prepare: Callable[[], object]) -> int:
    """Prepare the guest, and listen until SIGTERM or SIGINT; returns the exit status.

    Raises:
        SandboxError: the pool does not start, the address cannot be had, or the extra is not installed.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # until the door has a way of its own
    name, kinds, extra = SERVERS[options.command]
    try:
        door = importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise SandboxError(f"{error.name} is not installed: pip install 'torl[{extra}]'") from error
    prepare()
    try:
        door.serve(*(_read(settings, options) for settings in kinds))
    except (OSError, OverflowError) as error:
        raise SandboxError(f"cannot listen on {options.host}:{options.port}: {error}") from error
    except ValueError as error:
        raise SandboxError(str(error)) from error
    return 0


def _read(settings: Any, options: argparse.Namespace) -> Any:
    return settings(**{field.name: getattr(options, field.name) for field in dataclasses.fields(settings)})
