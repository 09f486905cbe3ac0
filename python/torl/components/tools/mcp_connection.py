"""A connection to an MCP server that reconnects after a failure."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from torl.base.errors import ConfigError, ToolUnavailableError
from torl.base.runtime.http import PLAIN_REPLIES, require_plain
from torl.base.runtime.processes.children import command_words
from torl.base.trust import require_trust
from torl.components.tools.retry import wait_for_server

if TYPE_CHECKING:
    from mcp import Client
    from mcp.client._transport import TransportStreams
    from mcp.types import CallToolResult, Tool

# JSON-RPC error codes for mistakes of the model: invalid arguments, unknown tool.
_MODEL_ERRORS = {-32602, -32601}
_CLOSED = -32000
_TIMEOUT_SECONDS, _READ_TIMEOUT_SECONDS = 30.0, 300.0  # the SDK's own


class RefusedCallError(Exception):
    """The server rejects a call because of a mistake of the model."""


class McpConnection:
    """One connection for all episodes, to a URL or to the stdin and stdout of a command.

    The SDK requires that the task that opens a client also closes it: the task `_keep`, which lasts as long as the
    connection. After a failure, the next call reconnects, which starts a command again.
    """

    def __init__(self, target: str, environment: Mapping[str, str]) -> None:
        """Prepare the connection.

        Args:
            target: URL, or command line of a server.
            environment: Environment variables of the command, in addition to those that the SDK passes through.

        Raises:
            ConfigError: The command does not exist.
            NotTrustedError: The server is one of a file that is not trusted.
        """
        self._target = target
        self._is_url = target.startswith(("http://", "https://"))
        require_trust(target, "connected to" if self._is_url else "started")
        self._command = [] if self._is_url else command_words(target, "the MCP server's")
        self._environment = dict(environment)
        self._client: Client | None = None
        self._tools: list[Tool] = []
        self._connecting: asyncio.Task[Client] | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._keepers: set[asyncio.Task[None]] = set()
        self.connected = 0  # number of connections made

    async def tools(self) -> "list[Tool]":
        """Return all tools of the server.

        Raises:
            ToolUnavailableError: The server cannot be reached.
        """
        await self._connect()
        return self._tools

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> "CallToolResult":
        """Call a tool of the server and return the result.

        Raises:
            RefusedCallError: The server rejects the tool or its arguments.
            ToolUnavailableError: The server returned no result.
        """
        from mcp import MCPError

        client = await self._connect()
        try:
            return await client.call_tool(tool, dict(arguments))
        except MCPError as error:
            if error.code in _MODEL_ERRORS:
                raise RefusedCallError(error.message) from error
            raise self._failure(client, error) from error
        except Exception as error:
            raise self._failure(client, error) from error

    async def close(self) -> None:
        """Close the connection, and stop the command."""
        connecting = [] if self._connecting is None else [self._connecting]
        for task in connecting:
            task.cancel()
        self._disconnect()
        await asyncio.gather(*connecting, *self._keepers, return_exceptions=True)

    async def _connect(self) -> "Client":
        """Return the open connection, or wait for a new one. Concurrent callers share the new one, and its failure."""
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
            self._disconnect()
            raise
        except Exception as error:
            raise ToolUnavailableError(f"no MCP server at {self._target!r}: {_innermost(error)}") from error
        except asyncio.CancelledError:
            self._disconnect()
            raise
        self.connected += 1
        return self._client

    def _forget_connecting(self, task: "asyncio.Task[Client]") -> None:
        self._connecting = None
        if not task.cancelled():
            task.exception()  # retrieved: its waiters, if any, have received it

    def _make(self) -> "Client":
        try:
            from mcp import Client, StdioServerParameters
        except ModuleNotFoundError as error:
            raise ConfigError(f"the tool 'mcp' needs {error.name}: pip install 'torl[mcp]'") from error
        if self._is_url:
            return Client(_plain_transport(self._target))
        command, *words = self._command
        return Client(StdioServerParameters(command=command, args=words, env=self._environment))

    async def _keep(self, client: "Client", ready: "asyncio.Future[Client]") -> None:
        try:
            async with client:
                # Required in every connection: the SDK parses results with the schemas of the tools.
                self._tools = await _list_tools(client)
                if not ready.done():
                    ready.set_result(client)
                await asyncio.Event().wait()  # until `_disconnect`
        except asyncio.CancelledError:
            if not ready.done():
                ready.set_exception(ConnectionError("the connection was closed"))
            raise
        except Exception as error:
            if not ready.done():
                ready.set_exception(error)

    def _failure(self, client: "Client", error: Exception) -> ToolUnavailableError:
        """Return the error of a call without a result, and close the connection if it was lost.

        After an invalid reply (the SDK raises RuntimeError or ValueError), the connection stays open for other calls.
        """
        lost = getattr(error, "code", _CLOSED) == _CLOSED and not isinstance(error, RuntimeError | ValueError)
        if self._client is client and (lost or self._keeper is None or self._keeper.done()):
            self._disconnect()
        return ToolUnavailableError(f"the MCP server {self._target!r}: {_innermost(error)}")

    def _disconnect(self) -> None:
        self._client = None
        if self._keeper is not None:
            self._keeper.cancel()


@asynccontextmanager
async def _plain_transport(url: str) -> AsyncIterator["TransportStreams"]:
    """Connect to a URL as the SDK does, but refuse compressed replies, which may be far larger than they look."""
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    async def check(response: httpx2.Response) -> None:
        require_plain(response)

    timeout = httpx2.Timeout(_TIMEOUT_SECONDS, read=_READ_TIMEOUT_SECONDS)
    async with (
        httpx2.AsyncClient(headers=PLAIN_REPLIES, timeout=timeout, event_hooks={"response": [check]}) as client,
        streamable_http_client(url, http_client=client) as streams,
    ):
        yield streams


async def _list_tools(client: "Client") -> "list[Tool]":
    """Request all pages of the list of tools."""
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
