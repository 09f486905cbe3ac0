"""The Python sandbox on every node of a cluster, as one interpreter."""

import functools
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torl.base.errors import ClusterError, SandboxError
from torl.base.runtime.cluster import Cluster
from torl.base.runtime.cluster.per_node import PerNode
from torl.components.tools.sandbox_host import Program, ProgramState, SandboxHost
from torl_sandbox import Execution, InterpreterSession, SandboxPool, StatefulInterpreter


class ClusterSandbox(StatefulInterpreter):
    """The pools of all nodes. Equal programs run on the same node, where they are executed once.

    The programs of a lost node run on another node.
    """

    def __init__(self, pool: Callable[[], SandboxPool]) -> None:
        """Set the picklable function that makes the pool of a node."""
        self._hosts = PerNode(functools.partial(SandboxHost, pool), "the sandbox")
        self._counts: Counter[str] = Counter()

    async def start(self, cluster: Cluster) -> None:
        """Start a pool on every node."""
        await self._hosts.start(cluster)

    async def run_async(self, code: str, *, seed: int = 0) -> Execution:
        """Run `code` from a fresh state on the node of its key."""
        return await self._call(f"{seed} {code}", "run_async", code, seed)

    def session(self, *, seed: int = 0) -> InterpreterSession:
        """Open a session. The episodes of a problem have the same seed and therefore run on the same node."""
        return Program(self._run_cell, ProgramState(seed))

    async def _run_cell(self, code: str, state: ProgramState, token: str) -> Execution:
        return await self._call(str(state.seed), "run_cell", code, state, token)

    async def _call(self, key: str, method: str, *arguments: Any) -> Execution:
        """Call a method of the host on the node of `key`."""
        try:
            node, result = await self._hosts.call_named(key, method, *arguments)
        except ClusterError as error:
            raise SandboxError(str(error)) from error
        execution: Execution = result
        return replace(execution, node=node)

    async def check(self) -> None:
        """Run the self-test on all available nodes, and update the counts."""
        self._counts = Counter()
        for counts in await self._hosts.call_all("check"):
            self._counts.update(counts)

    def stats(self) -> dict[str, int]:
        """Return the sum of the counts of all nodes at the last `check`."""
        return dict(self._counts)

    async def close(self) -> None:
        """Stop all pools."""
        await self._hosts.close()
