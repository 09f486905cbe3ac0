"""A connection to an MCP server, which is made again after it broke."""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torl.errors import ConfigError, ToolUnavailableError
from torl.runtime.processes.children import command_words
from torl.tools.server_startup import wait_for_server

if TYPE_CHECKING:
    from mcp import Client
    from mcp.types import CallToolResult, Tool

# What a server says of a request of the model's, by JSON-RPC's codes: the arguments are wrong, there is no such tool.
_OF_THE_MODEL = {-32602, -32601}
_CLOSED = -32000


class RefusedCallError(Exception):
    """The server refuses a call for what the model asked."""


class McpConnection:
    """One connection for all episodes, to a command's stdin and stdout or to a URL.

    The SDK wants a client closed by the task that opened it: `_keep` is that task, and its end is the connection's. The
    call after one that broke makes another, which starts a command again.
    """

    def __init__(self, target: str, environment: Mapping[str, str]) -> None:
        """Connect to nothing yet.

        Args:
            target: a URL, or the words of a command.
            environment: of the command, beside the few variables that the SDK hands on.

        Raises:
            ConfigError: there is no such command.
        """
        self._target = target
        self._is_url = target.startswith(("http://", "https://"))
        self._command = [] if self._is_url else command_words(target, "the MCP server's")
        self._environment = dict(environment)
        self._client: Client | None = None
        self._tools: list[Tool] = []
        self._connecting: asyncio.Task[Client] | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._keepers: set[asyncio.Task[None]] = set()
        self.connected = 0  # times

    async def tools(self) -> "list[Tool]":
        """All tools of the server.

        Raises:
            ToolUnavailableError: there is none that says them.
        """
        await self._connect()
        return self._tools

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> "CallToolResult":
        """What the server gives.

        Raises:
            RefusedCallError: the server does not know the tool or its arguments.
            ToolUnavailableError: it gave nothing.
        """
        from mcp import MCPError

        client = await self._connect()
        try:
            return await client.call_tool(tool, dict(arguments))
        except MCPError as error:
            if error.code in _OF_THE_MODEL:
                raise RefusedCallError(error.message) from error
            raise self._broken(client, error) from error
        except Exception as error:
            raise self._broken(client, error) from error

    async def close(self) -> None:
        """End the connection, and the command."""
        connecting = [] if self._connecting is None else [self._connecting]
        for task in connecting:
            task.cancel()
        self._leave()
        await asyncio.gather(*connecting, *self._keepers, return_exceptions=True)

    async def _connect(self) -> "Client":
        """The connection there is, or one that all who wait for it share, as they share its failure."""
        if self._client is not None:
            return self._client
        if self._connecting is None:
            self._connecting = asyncio.create_task(self._connected())
            self._connecting.add_done_callback(self._forget_connecting)
        return await asyncio.shield(self._connecting)

    async def _connected(self) -> "Client":
        ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._keeper = asyncio.create_task(self._keep(self._make(), ready))
        self._keepers.add(self._keeper)
        self._keeper.add_done_callback(self._keepers.discard)
        try:
            self._client = await wait_for_server(ready, f"the MCP server {self._target!r}")
        except ToolUnavailableError:
            self._leave()
            raise
        except Exception as error:
            raise ToolUnavailableError(f"no MCP server at {self._target!r}: {_innermost(error)}") from error
        except asyncio.CancelledError:
            self._leave()
            raise
        self.connected += 1
        return self._client

    def _forget_connecting(self, task: "asyncio.Task[Client]") -> None:
        self._connecting = None
        if not task.cancelled():
            task.exception()  # who waited for it has it, if anybody still does

    def _make(self) -> "Client":
        try:
            from mcp import Client, StdioServerParameters
        except ModuleNotFoundError as error:
            raise ConfigError(f"the tool 'mcp' needs {error.name}: pip install 'torl[mcp]'") from error
        if self._is_url:
            return Client(self._target)
        command, *words = self._command
        return Client(StdioServerParameters(command=command, args=words, env=self._environment))

    async def _keep(self, client: "Client", ready: "asyncio.Future[Client]") -> None:
        try:
            async with client:
                # In every connection: by the schemas of its tools the SDK reads what they give.
                self._tools = await _listed(client)
                if not ready.done():
                    ready.set_result(client)
                await asyncio.Event().wait()  # until `_leave`
        except asyncio.CancelledError:
            if not ready.done():
                ready.set_exception(ConnectionError("it was closed"))
            raise
        except Exception as error:
            if not ready.done():
                ready.set_exception(error)

    def _broken(self, client: "Client", error: Exception) -> ToolUnavailableError:
        """The error of a call without an outcome; if the connection ended, the next call makes another.

        An answer that is not as it should be (the SDK raises a RuntimeError or ValueError) leaves it to other calls.
        """
        lost = getattr(error, "code", _CLOSED) == _CLOSED and not isinstance(error, RuntimeError | ValueError)
        if self._client is client and (lost or self._keeper is None or self._keeper.done()):
            self._leave()
        return ToolUnavailableError(f"the MCP server {self._target!r}: {_innermost(error)}")

    def _leave(self) -> None:
        self._client = None
        if self._keeper is not None:
            self._keeper.cancel()


async def _listed(client: "Client") -> "list[Tool]":
    """All tools, page after page."""
    tools, cursor = [], None
    while True:
        page = await client.list_tools(cursor=cursor)
        tools += page.tools
        cursor = page.next_cursor
        if not cursor:
            return tools


def _innermost(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {getattr(error, 'message', None) or error}"
