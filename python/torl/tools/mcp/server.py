"""The tools of an MCP server, each as a tool of torl's."""

import asyncio
import json
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from torl.component import RunContext
from torl.errors import ConfigError
from torl.options import Section, suggestion
from torl.tools.base import BaseTool, StatefulTool, Tool, ToolSession
from torl.tools.mcp.connection import McpConnection, RefusedCallError
from torl.tools.server_startup import wait_for_server
from torl.types import Outcome, OutcomeStatus

if TYPE_CHECKING:
    from mcp.types import CallToolResult
    from mcp.types import Tool as Described


class McpOptions(Section):
    """Options of the tool "mcp": the tools of a server of the Model Context Protocol."""

    mcp: str
    """The server: a URL (streamable HTTP), or a command that speaks on stdin and stdout."""
    tools: tuple[str, ...] = ()
    """The server's tools that a model may call; all when empty."""
    env: dict[str, str] = {}  # noqa: RUF012
    """Environment variables of the command, beside HOME, PATH and their like. A run's records hold them."""
    inherit_env: tuple[str, ...] = ()
    """Names of variables that the command has from torl's own environment, such as that of a key: no record holds what
    they are."""


class McpServer(StatefulTool):
    """Connects to a server. What a model may call are its tools, by their own names."""

    description = "The tools of a server."
    parameters: Mapping[str, Any] = {"type": "object"}

    def __init__(self, options: McpOptions) -> None:
        """Connect to nothing yet.

        Raises:
            ConfigError: there is no such command, or no variable that it is to inherit.
        """
        self.options = options
        self._connection = self._connection_of_its_own()
        self._tools: dict[str, BaseTool] = {}

    def session(self, seed: int) -> ToolSession:
        raise AssertionError("a model calls the tools of an MCP server, never the server itself")

    def provided_tools(self, name: str) -> Mapping[str, BaseTool]:
        """The server's tools, or those of them that the options name.

        Before the start the server is asked in a connection for that alone, while the caller waits.

        Raises:
            ConfigError, ToolUnavailableError: see `start`.
        """
        if not self._tools:
            with ThreadPoolExecutor(1) as thread:
                thread.submit(asyncio.run, self._ask_alone()).result()
        return self._tools

    async def start(self, context: RunContext) -> None:
        """Connect, and ask for the tools.

        Raises:
            ConfigError: the SDK is not installed, or the server lacks a tool that the options name.
            ToolUnavailableError: there is no server.
        """
        await self._ask(self._connection)

    def _connection_of_its_own(self) -> McpConnection:
        inherited = self.options.inherit_env
        if missing := [name for name in inherited if name not in os.environ]:
            raise ConfigError(f"the MCP server {self.options.mcp!r} inherits {missing[0]}, which is not set here")
        variables = {name: os.environ[name] for name in inherited}
        return McpConnection(self.options.mcp, self.options.env | variables)

    async def _ask_alone(self) -> None:
        connection = self._connection_of_its_own()
        try:
            await self._ask(connection)
        finally:
            await connection.close()

    async def _ask(self, connection: McpConnection) -> None:
        tools = await wait_for_server(connection.tools(), f"the MCP server {self.options.mcp!r}")
        described = {tool.name: tool for tool in tools}
        if len(described) < len(tools):
            raise ConfigError(f"the MCP server {self.options.mcp!r} has two tools of one name")
        for name in self.options.tools or described:
            if name not in described:
                known = suggestion(name, list(described)) or f"; it has: {', '.join(described)}"
                raise ConfigError(f"the MCP server {self.options.mcp!r} has no tool {name!r}{known}")
            self._tools[name] = McpTool(self._connection, described[name])

    async def close(self) -> None:
        """End the connection, and the command."""
        await self._connection.close()


class McpTool(Tool):
    """One tool of a server. The server does not know which episode calls it."""

    def __init__(self, connection: McpConnection, described: "Described") -> None:
        """A tool that a server has described."""
        self._connection = connection
        self._name = described.name
        self.description = described.description or described.title or described.name
        self.parameters = described.input_schema

    async def call(self, arguments: Mapping[str, Any]) -> Outcome:
        """Call it; an error that the server reports is the model's to see."""
        try:
            return outcome_of_result(await self._connection.call(self._name, arguments))
        except RefusedCallError as error:
            return Outcome(OutcomeStatus.ERROR, str(error), "ToolError")

    def metrics(self) -> Mapping[str, float]:
        """How often the server was connected to."""
        return {"connected": self._connection.connected}


def outcome_of_result(result: "CallToolResult") -> Outcome:
    """A result's texts, one below the other; what is no text is named by its kind. JSON alone is shown as such."""
    text = "\n".join(map(_text, result.content))
    if not result.content and result.structured_content is not None:
        text = json.dumps(result.structured_content, ensure_ascii=False)
    if result.is_error:
        return Outcome(OutcomeStatus.ERROR, text, "ToolError")
    return Outcome(OutcomeStatus.OK, text)


def _text(content: Any) -> str:
    if content.type == "text":
        return str(content.text)
    resource = getattr(content, "resource", None)
    if (text := getattr(resource, "text", None)) is not None:
        return str(text)
    kind = getattr(resource or content, "mime_type", None) or content.type
    return f"[{kind}]"
