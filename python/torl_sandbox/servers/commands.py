"""The server commands `serve`, `mcp` and `openenv` of `python -m torl_sandbox`."""

import argparse
import dataclasses
import importlib
from collections.abc import Callable, Mapping
from typing import Any

from torl_sandbox.errors import SandboxError
from torl_sandbox.servers.settings import (
    McpSettings,
    PoolSettings,
    ServerSettings,
    SessionSettings,
    add_options,
    exit_at_sigterm,
    read_options,
)


@dataclasses.dataclass(frozen=True, slots=True)
class ServerCommand:
    """A command that starts a server."""

    module: str
    """Module with a function `serve`, which takes the settings."""
    settings: tuple[Any, ...]
    """Dataclasses of the settings."""
    extra: str
    """Extra of the package that installs the server's libraries."""
    help: str
    defaults: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """Defaults that differ from the settings'."""


SERVERS: dict[str, ServerCommand] = {
    "serve": ServerCommand(
        "torl_sandbox.servers.fusion", (PoolSettings, ServerSettings), "serve", "serve SandboxFusion's HTTP interface"
    ),
    "mcp": ServerCommand(
        "torl_sandbox.servers.mcp_server",
        (PoolSettings, ServerSettings, SessionSettings, McpSettings),
        "mcp",
        "serve the tool run_python of the Model Context Protocol, on stdin and stdout or over HTTP",
        {"cpu_seconds": 30.0},  # clients of assistants wait for about a minute
    ),
    "openenv": ServerCommand(
        "torl_sandbox.servers.openenv_server",
        (PoolSettings, ServerSettings, SessionSettings),
        "openenv",
        "serve the coding environment of OpenEnv, over WebSocket and HTTP",
    ),
}


def add_server_commands(commands: Any) -> None:
    """Add the server commands to the subparsers `commands`."""
    for name, command in SERVERS.items():
        parser = commands.add_parser(
            name, help=command.help, description=f"{command.help[0].upper()}{command.help[1:]}."
        )
        for settings in command.settings:
            add_options(parser, settings)
        parser.set_defaults(**command.defaults)


def run_server(options: argparse.Namespace, prepare: Callable[[], object]) -> int:
    """Prepare the guest, serve until SIGTERM or SIGINT, and return the exit status.

    Raises:
        SandboxError: The pool does not start, the address is unavailable, or the extra is not installed.
    """
    exit_at_sigterm()
    command = SERVERS[options.command]
    try:
        module = importlib.import_module(command.module)
    except ModuleNotFoundError as error:
        raise SandboxError(
            f"{error.name} is not installed: pip install 'torl-sandbox[{command.extra}]' or 'torl[{command.extra}]'"
        ) from error
    prepare()
    try:
        module.serve(*(read_options(settings, options) for settings in command.settings))
    except (OSError, ValueError) as error:
        raise SandboxError(str(error)) from error
    return 0
