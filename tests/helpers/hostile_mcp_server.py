"""An MCP server on stdin and stdout whose tools answer with what a client does not expect.

While the file is there that its argument names, it notes its starts in it and ends.
"""

import asyncio
import os
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

NODE = {
    "type": "object",
    "properties": {"value": {"type": "integer"}, "next": {"$ref": "#/$defs/node"}},
    "required": ["value"],
}
NUMBER = {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}
ANSWERS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "depth": lambda arguments: types.CallToolResult(content=[text(str(depth(arguments["node"])))]),
    "structured": lambda _: types.CallToolResult(content=[], structured_content={"number": 1}),
    "broken": lambda _: types.CallToolResult(content=[text("one")], structured_content={"number": "one"}),
    "long": lambda _: types.CallToolResult(content=[text("x" * 3_000_000)]),
    "picture": lambda _: types.CallToolResult(
        content=[types.ImageContent(type="image", data="A" * 1_000_000, mime_type="image/png")]
    ),
    "die": lambda _: os._exit(3),
    "nothing": lambda _: types.CallToolResult(content=[]),
    "wait": lambda _: types.CallToolResult(content=[text("waited")]),
}
SCHEMAS: dict[str, dict[str, Any]] = {
    "depth": {"type": "object", "properties": {"node": {"$ref": "#/$defs/node"}}, "$defs": {"node": NODE}}
}
called: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)


def text(said: str) -> types.TextContent:
    """A text."""
    return types.TextContent(type="text", text=said)


def depth(node: dict[str, Any]) -> int:
    """How many nodes hang together."""
    return 1 + (depth(node["next"]) if "next" in node else 0)


async def on_list(_: Any, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
    """One tool a page."""
    names = [*ANSWERS]
    page = int(params.cursor or 0) if params else 0
    name = names[page]
    tool = types.Tool(
        name=name,
        input_schema=SCHEMAS.get(name, {"type": "object"}),
        output_schema=NUMBER if name == "broken" else None,
    )
    return types.ListToolsResult(tools=[tool], next_cursor=str(page + 1) if page + 1 < len(names) else None)


async def on_call(_: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
    """Answer by the tool's name; if the arguments ask for it, after another tool has been called."""
    arguments = params.arguments or {}
    result: types.CallToolResult = ANSWERS[params.name](arguments)
    if "until" in arguments:
        await called[arguments["until"]].wait()
    called[params.name].set()
    return result


async def main() -> None:
    """Serve."""
    server = Server("hostile", on_list_tools=on_list, on_call_tool=on_call)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


if len(sys.argv) > 1 and Path(sys.argv[1]).exists():
    with Path(sys.argv[1]).open("a") as starts:
        starts.write("once\n")
    sys.exit("not now")
asyncio.run(main())
