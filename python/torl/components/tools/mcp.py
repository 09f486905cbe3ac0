"""The tools of servers of the Model Context Protocol (MCP), with its official SDK."""

import asyncio
import json
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Literal

from torl.base.component import RunContext
from torl.base.errors import ConfigError
from torl.base.options import Section, suggestion
from torl.base.types import Outcome, OutcomeStatus
from torl.components.tools.mcp_connection import McpConnection, RefusedCallError
from torl.components.tools.retry import wait_for_server
from torl.components.tools.tool import BaseTool, StatefulTool, Tool, ToolSession

if TYPE_CHECKING:
    from mcp.types import CallToolResult
    from mcp.types import Tool as ToolDescription


class McpOptions(Section):
    """Options of the tool "mcp": the tools of a server of the Model Context Protocol."""

    mcp: str
    """Server: a URL (streamable HTTP), or a command that communicates over stdin and stdout."""
    tools: tuple[str, ...] = ()
    """Names of the server's tools that a model may call. Default: all."""
    env: dict[str, str | Literal[True]] = {}  # noqa: RUF012
    """Environment variables of the command, in addition to HOME, PATH and similar ones. `true` passes through the
    variable of torl's own environment, such as an API key, whose value is never recorded."""


class McpServer(StatefulTool):
    """A connection to a server. The model calls the server's tools by their own names."""

    description = "The tools of a server."
    parameters: Mapping[str, Any] = {"type": "object"}

    def __init__(self, options: McpOptions) -> None:
        """Prepare the connection.

        Raises:
            ConfigError: The command does not exist, or a variable to pass through is not set.
        """
        self.options = options
        self._connection = self._new_connection()
        self._tools: dict[str, BaseTool] = {}

    def session(self, seed: int) -> ToolSession:
        raise AssertionError("a model calls the tools of an MCP server, never the server itself")

    def provided_tools(self, name: str) -> Mapping[str, BaseTool]:
        """Return the server's tools, or those that the options name.

        Before the start, the tools are requested through a temporary connection, while the caller waits.

        Raises:
            ConfigError, ToolUnavailableError: See `start`.
        """
        if not self._tools:
            with ThreadPoolExecutor(1) as thread:
                thread.submit(asyncio.run, self._read_tools_once()).result()
        return self._tools

    async def start(self, context: RunContext) -> None:
        """Connect to the server, and request its tools.

        Raises:
            ConfigError: The SDK is not installed, or the server lacks a tool that the options name.
            ToolUnavailableError: The server cannot be reached.
        """
        await self._read_tools(self._connection)

    def _new_connection(self) -> McpConnection:
        given = self.options.env
        if missing := [name for name, value in given.items() if value is True and name not in os.environ]:
            raise ConfigError(f"the MCP server {self.options.mcp!r} inherits {missing[0]}, which is not set here")
        variables = {name: os.environ[name] if value is True else value for name, value in given.items()}
        return McpConnection(self.options.mcp, variables)

    async def _read_tools_once(self) -> None:
        connection = self._new_connection()
        try:
            await self._read_tools(connection)
        finally:
            await connection.close()

    async def _read_tools(self, connection: McpConnection) -> None:
        tools = await wait_for_server(connection.tools(), f"the MCP server {self.options.mcp!r}")
        descriptions = {tool.name: tool for tool in tools}
        if len(descriptions) < len(tools):
            raise ConfigError(f"the MCP server {self.options.mcp!r} has two tools of one name")
        for name in self.options.tools or descriptions:
            if name not in descriptions:
                known = suggestion(name, list(descriptions)) or f"; it has: {', '.join(descriptions)}"
                raise ConfigError(f"the MCP server {self.options.mcp!r} has no tool {name!r}{known}")
            self._tools[name] = McpTool(self._connection, descriptions[name])

    async def close(self) -> None:
        await self._connection.close()


class McpTool(Tool):
    """A tool of a server. The server does not know which episode calls it."""

    checks_arguments = True

    def __init__(self, connection: McpConnection, description: "ToolDescription") -> None:
        """Wrap a tool that a server has described."""
        self._connection = connection
        self._name = description.name
        self.description = description.description or description.title or description.name
        self.parameters = description.input_schema

    async def call(self, arguments: Mapping[str, Any]) -> Outcome:
        """Call the tool. The model sees an error that the server reports."""
        try:
            return outcome_of_result(await self._connection.call(self._name, arguments))
        except RefusedCallError as error:
            return Outcome(OutcomeStatus.ERROR, str(error), "ToolError")

    def metrics(self) -> Mapping[str, float]:
        """Return the number of connections that were made."""
        return {"connected": self._connection.connected}


def outcome_of_result(result: "CallToolResult") -> Outcome:
    """Convert a result to an outcome: its texts joined by newlines, non-text content replaced by its type.

    If a result has structured content only, its text is JSON.
    """
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
    media_type = getattr(resource or content, "mime_type", None) or content.type
    return f"[{media_type}]"
