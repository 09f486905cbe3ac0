"""MCP on stdin and stdout. Messages that cannot be read are answered with an error; the SDK drops them."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from io import TextIOWrapper
from typing import Any

import anyio
from mcp.server.mcpserver import MCPServer
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from mcp.types import INVALID_REQUEST, PARSE_ERROR, ErrorData, JSONRPCError, jsonrpc_message_adapter
from pydantic import ValidationError

from torl_sandbox.pool import SandboxPool


async def serve_stdio(server: MCPServer, pool: SandboxPool) -> None:
    """Serve until stdin ends. SIGTERM cancels pending calls, because the thread that reads stdin cannot be woken."""

    def exit_now() -> None:
        pool.close()
        os._exit(0)

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, exit_now)
    lines = _ReadableLines()
    async with stdio_server(lines) as (received, sent):  # type: ignore[arg-type]
        lines.replies = sent
        sdk = server._lowlevel_server
        await sdk.run(received, sent, sdk.create_initialization_options())


class _ReadableLines:
    """The lines of stdin that are messages."""

    replies: Any  # the SDK's stream of sent messages

    async def __aiter__(self) -> AsyncIterator[str]:
        async for line in anyio.wrap_file(TextIOWrapper(sys.stdin.buffer, encoding="utf-8", errors="replace")):
            if line.isspace():
                continue
            try:
                jsonrpc_message_adapter.validate_json(line, by_name=False)
            except ValidationError as error:
                await self.replies.send(SessionMessage(_refusal(line, error)))
            else:
                yield line


def _refusal(line: str, error: ValidationError) -> JSONRPCError:
    """Return the reply to a line that pydantic cannot read, such as one with half of a surrogate pair."""
    try:
        message = json.loads(line)
        id = message["id"] if isinstance(message["id"], int | str) else None
        code = INVALID_REQUEST
    except (ValueError, TypeError, KeyError, RecursionError):
        id, code = None, PARSE_ERROR
    text = f"the message cannot be read: {error.errors(include_url=False)[0]['msg']}"
    return JSONRPCError(jsonrpc="2.0", id=id, error=ErrorData(code=code, message=text))
