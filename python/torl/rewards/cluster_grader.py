"""Graders on every node of a cluster, behind the face of one."""

import functools

from torl.errors import ClusterError, RewardError
from torl.rewards.grader import Grader
from torl.rewards.verdict import Verdict, compare_exactly
from torl.runtime.cluster import Cluster
from torl.runtime.cluster.per_node import PerNode


class GraderHost:
    """On a node: a grader."""

    def __init__(self, workers: int, timeout_seconds: float) -> None:
        self._grader = Grader(workers, timeout_seconds)

    async def start(self) -> None:
        """Start its processes."""
        await self._grader.__aenter__()

    async def grade(self, reference: str, answer: str) -> Verdict:
        """Have a pair judged."""
        return await self._grader.grade_async(reference, answer)

    async def close(self) -> None:
        """End its processes."""
        await self._grader.__aexit__(None, None, None)


class ClusterGrader:
    """The graders of all nodes. A pair is judged on one node, which remembers it; what is plain is judged here."""

    def __init__(self, workers: int, timeout_seconds: float) -> None:
        """Start nothing yet; `workers` are those of each node."""
        self._hosts = PerNode(functools.partial(GraderHost, workers, timeout_seconds), "the grader")

    async def start(self, cluster: Cluster) -> None:
        """Start the graders."""
        await self._hosts.start(cluster)

    async def grade_async(self, reference: str, answer: str) -> Verdict:
        """Compare one answer with its reference."""
        verdict = compare_exactly(reference, answer)
        if verdict is None:
            try:
                verdict = await self._hosts.call(f"{reference}\0{answer}", "grade", reference, answer)
            except ClusterError as error:
                raise RewardError(str(error)) from error
        return verdict

    async def close(self) -> None:
        """End all graders."""
        await self._hosts.close()
