"""A small MCP server on stdin and stdout, or over HTTP on a given port; each of its tools fails in another way."""

import os
import sys
from pathlib import Path

from mcp.server.mcpserver import Image, MCPServer

server = MCPServer("small", log_level="CRITICAL")


@server.tool(structured_output=False)
def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


@server.tool(structured_output=False)
def process() -> str:
    """The server's process."""
    return str(os.getpid())


@server.tool(structured_output=False)
def refuse(what: str) -> str:
    """Refuse."""
    raise LookupError(f"there is no {what}")


@server.tool(structured_output=False)
def draw() -> list[str | Image]:
    """A picture with a title."""
    return ["a dot", Image(data=b"\x89PNG", format="png")]


@server.tool(structured_output=False)
def die_while(path: str) -> str:
    """End the process, without an answer, while a file is there; which goes with it."""
    if Path(path).exists():
        Path(path).unlink()
        os._exit(3)
    return "alive"


if len(sys.argv) > 1:
    server.run("streamable-http", port=int(sys.argv[1]))
server.run("stdio")
