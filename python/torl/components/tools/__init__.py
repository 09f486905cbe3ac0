"""Tools that a model may call."""

from collections.abc import Callable
from types import MappingProxyType
from typing import Any

from torl.components.tools.function import FunctionTool
from torl.components.tools.mcp import McpServer
from torl.components.tools.python import PythonOptions, PythonTool
from torl.components.tools.sandbox_fusion import SandboxFusionOptions, SandboxFusionTool
from torl.components.tools.search import Bm25Tool, RetrievalTool
from torl.components.tools.tool import BaseTool, StatefulTool, Tool, ToolSession
from torl.components.tools.wrappers import BoundedTool, ShuffledTool, ToolLimits, make_tool, tool_limits

TOOLS: MappingProxyType[str, Callable[..., Any]] = MappingProxyType(
    {
        "python": PythonTool,
        "sandbox_fusion": SandboxFusionTool,
        "function": FunctionTool,
        "mcp": McpServer,
        "search": Bm25Tool,
        "retrieval": RetrievalTool,
    }
)
"""Tools by their names in a configuration."""
TOOL_SHORTHANDS = ("function", "mcp")
"""Names of `TOOLS` that an option of the same name selects: `function = "package.module:look_up"`."""

__all__ = [
    "TOOLS",
    "TOOL_SHORTHANDS",
    "BaseTool",
    "Bm25Tool",
    "BoundedTool",
    "FunctionTool",
    "McpServer",
    "PythonOptions",
    "PythonTool",
    "RetrievalTool",
    "SandboxFusionOptions",
    "SandboxFusionTool",
    "ShuffledTool",
    "StatefulTool",
    "Tool",
    "ToolLimits",
    "ToolSession",
    "make_tool",
    "tool_limits",
]
