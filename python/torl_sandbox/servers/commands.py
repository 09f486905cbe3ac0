"""The server commands `serve`, `mcp` and `openenv` of `python -m torl_sandbox`."""

import argparse
import ast
import dataclasses
import importlib
import inspect
import textwrap
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

from torl_sandbox.errors import SandboxError
from torl_sandbox.options import MAXIMUM_MEMORY, MINIMUM_MEMORY
from torl_sandbox.servers.settings import McpSettings, PoolSettings, ServerSettings, exit_at_sigterm
from torl_sandbox.session import SessionSettings

# Smallest and largest values of options. Others are positive.
_RANGES = {"port": (0, 65535), "memory_mib": (MINIMUM_MEMORY >> 20, MAXIMUM_MEMORY >> 20)}
_MAY_BE_ZERO = ("output_kib", "files_mib", "max_returned_mib", "grace_period_seconds")


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


def add_options(parser: argparse.ArgumentParser, settings: Any) -> None:
    """Add an option for each field of a settings class, with the field's docstring as help."""
    descriptions = _field_docstrings(settings)
    for field in dataclasses.fields(settings):
        name, description = f"--{field.name.replace('_', '-')}", descriptions[field.name].replace("%", "%%")
        if field.default is False:
            parser.add_argument(name, action="store_true", help=description)
            continue
        kind = int if field.default is None else type(field.default)
        help = description + ("" if field.default is None else " (default: %(default)s)")
        parse = str if kind is str else _number(field.name, kind)
        unit = field.name.rpartition("_")[2].upper()
        metavar = unit if unit in ("SECONDS", "MIB", "KIB", "HOST", "PORT") else "COUNT"
        parser.add_argument(name, type=parse, default=field.default, metavar=metavar, help=help)


def _field_docstrings(settings: Any) -> dict[str, str]:
    """Return the docstrings below the fields of a dataclass."""
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(settings))).body
    assert isinstance(definition, ast.ClassDef)
    return {
        field.target.id: text.value.value
        for field, text in pairwise(definition.body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }


def _number(name: str, kind: type) -> Callable[[str], Any]:
    def parse(text: str) -> Any:
        value = kind(text)
        if name in _RANGES:
            minimum, maximum = _RANGES[name]
            if not minimum <= value <= maximum:
                raise argparse.ArgumentTypeError(f"must be between {minimum} and {maximum}, got {text}")
        elif not (0 < value < 1e9 or (value == 0 and name in _MAY_BE_ZERO)):
            raise argparse.ArgumentTypeError(f"must be a positive number, got {text}")
        return value

    parse.__name__ = kind.__name__  # for argparse's message
    return parse


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
        module.serve(*(_read(settings, options) for settings in command.settings))
    except (OSError, ValueError) as error:
        raise SandboxError(str(error)) from error
    return 0


def _read(settings: Any, options: argparse.Namespace) -> Any:
    return settings(**{field.name: getattr(options, field.name) for field in dataclasses.fields(settings)})
