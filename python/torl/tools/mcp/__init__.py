"""The tools of servers of the Model Context Protocol, by its official SDK."""

from torl.tools.mcp.server import McpOptions, McpServer

__all__ = ["McpOptions", "McpServer"]
