"""A tool around another: what it does not say itself is the other's."""

from collections.abc import Callable, Mapping

from torl.runtime.cluster import Cluster
from torl.tools.base import Tool


class WrappedTool(Tool):
    """Passes everything but sessions on to the tool inside."""

    def __init__(self, tool: Tool) -> None:
        """Wrap `tool`."""
        self.tool = tool
        self.description = tool.description
        self.parameters = tool.parameters
        self.speculative = tool.speculative

    def use_cluster(self, cluster: Cluster) -> None:
        """Tell it where the run is."""
        self.tool.use_cluster(cluster)

    async def start(self, on_progress: Callable[[str, float], object] | None = None) -> None:
        """Start the tool itself."""
        await self.tool.start(on_progress)

    async def close(self) -> None:
        """Close it."""
        await self.tool.close()

    async def check(self) -> None:
        """Check it."""
        await self.tool.check()

    def metrics(self) -> Mapping[str, float]:
        """The counts of the tool itself."""
        return self.tool.metrics()
