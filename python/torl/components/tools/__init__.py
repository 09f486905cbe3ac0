"""Tools that a model may call."""

from collections.abc import Callable
from types import MappingProxyType
from typing import Any

from torl.components.tools.examples import ExamplesTool as ExamplesTool
from torl.components.tools.function import FunctionTool as FunctionTool
from torl.components.tools.mcp import McpServer as McpServer
from torl.components.tools.python import PythonOptions as PythonOptions
from torl.components.tools.python import PythonTool as PythonTool
from torl.components.tools.sandbox_fusion import SandboxFusionOptions as SandboxFusionOptions
from torl.components.tools.sandbox_fusion import SandboxFusionTool as SandboxFusionTool
from torl.components.tools.search import Bm25Tool as Bm25Tool
from torl.components.tools.search import RetrievalTool as RetrievalTool
from torl.components.tools.tool import BaseTool as BaseTool
from torl.components.tools.tool import StatefulTool as StatefulTool
from torl.components.tools.tool import Tool as Tool
from torl.components.tools.tool import ToolSession as ToolSession
from torl.components.tools.wrappers import BoundedTool as BoundedTool
from torl.components.tools.wrappers import ShuffledTool as ShuffledTool
from torl.components.tools.wrappers import ToolLimits as ToolLimits
from torl.components.tools.wrappers import make_tool as make_tool
from torl.components.tools.wrappers import tool_limits as tool_limits

TOOLS: MappingProxyType[str, Callable[..., Any]] = MappingProxyType(
    {
        "python": PythonTool,
        "sandbox_fusion": SandboxFusionTool,
        "run_examples": ExamplesTool,
        "function": FunctionTool,
        "mcp": McpServer,
        "search": Bm25Tool,
        "retrieval": RetrievalTool,
    }
)
"""Tools by their names in a configuration."""
TOOL_SHORTHANDS = ("function", "mcp")
"""Names of `TOOLS` that an option of the same name selects: `function = "package.module:look_up"`."""
