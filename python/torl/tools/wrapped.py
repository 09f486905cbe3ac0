"""A tool that wraps another one."""

from collections.abc import Mapping

from torl.component import RunContext
from torl.tools.base import BaseTool


class WrappedTool(BaseTool):
    """Forwards everything except sessions to the wrapped tool."""

    def __init__(self, tool: BaseTool) -> None:
        """Wrap `tool`."""
        self.tool = tool
        self.description = tool.description
        self.parameters = tool.parameters
        self.speculative = tool.speculative

    async def start(self, context: RunContext) -> None:
        await self.tool.start(context)

    async def close(self) -> None:
        await self.tool.close()

    async def check(self) -> None:
        await self.tool.check()

    def metrics(self) -> Mapping[str, float]:
        return self.tool.metrics()
