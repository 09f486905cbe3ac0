"""The Python sandbox on every node of a cluster, as one interpreter."""

import asyncio
import functools
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

from torl.errors import ClusterError, SandboxError
from torl.runtime.cluster import Cluster
from torl.runtime.cluster.per_node import PerNode
from torl.sandbox import Execution, InterpreterSession, SandboxPool, StatefulInterpreter, prepare_guest
from torl.sandbox.session import Session

_MAX_STATE_BYTES = 256 << 20
"""Maximum size of the program states that a node keeps. Evicted programs are executed again."""


class SandboxHost:
    """The pool of a node. A program is identified by its cells, so that any node can continue it."""

    def __init__(self, pool: Callable[[], SandboxPool]) -> None:
        """Set the function that makes the pool at the start."""
        self._make = pool
        self._pool: SandboxPool | None = None
        self._programs: OrderedDict[tuple[int, tuple[str, ...]], Session] = OrderedDict()  # idle programs
        self._kept_bytes = 0

    async def start(self) -> None:
        """Prepare the guest (once per machine) and start the workers."""
        await asyncio.to_thread(prepare_guest)
        self._pool = await asyncio.to_thread(self._make)
        await self.check()

    async def run(self, code: str, seed: int) -> Execution:
        """Run a program from a fresh state."""
        return await self._running().run_async(code, seed=seed)

    async def run_cell(self, code: str, seed: int, earlier: tuple[str, ...]) -> Execution:
        """Run a cell after the earlier cells, which are executed again if this node lacks their state."""
        kept = self._programs.get((seed, earlier))
        if kept is None:
            program = self._running().session(seed=seed)
            for cell in earlier:
                await program.run_async(cell)
        else:
            program = kept.fork()
        execution = await program.run_async(code)
        self._keep((seed, (*earlier, code)), program)
        return execution

    def _keep(self, name: tuple[int, tuple[str, ...]], program: Session) -> None:
        if name in self._programs:
            return  # another sample has run the same cells
        self._programs[name] = program
        self._kept_bytes += program.state_bytes
        while len(self._programs) > 1 and self._kept_bytes > _MAX_STATE_BYTES:
            self._kept_bytes -= self._programs.popitem(last=False)[1].state_bytes

    async def check(self) -> dict[str, int]:
        """Run the self-test of the pool and return its counts."""
        pool = self._running()
        await asyncio.to_thread(pool.self_test)
        return pool.stats()

    async def close(self) -> None:
        """Stop the workers."""
        pool, self._pool = self._pool, None
        if pool is not None:
            await asyncio.to_thread(pool.close)

    def _running(self) -> SandboxPool:
        if self._pool is None:
            raise SandboxError("the sandbox of this node is not running")
        return self._pool


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
        return await self.call(f"{seed} {code}", "run", code, seed)

    def session(self, *, seed: int = 0) -> InterpreterSession:
        """Open a session. The episodes of a problem have the same seed and therefore run on the same node."""
        return _Program(self, seed)

    async def call(self, key: str, method: str, *arguments: Any) -> Execution:
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


@dataclass(slots=True)
class _Program(InterpreterSession):
    """A program on a node, identified by the cells that it has run."""

    nodes: ClusterSandbox
    seed: int
    cells: tuple[str, ...] = ()

    async def run_async(self, code: str) -> Execution:
        execution = await self.nodes.call(str(self.seed), "run_cell", code, self.seed, self.cells)
        self.cells = (*self.cells, code)
        return execution

    def fork(self) -> Self:
        return type(self)(self.nodes, self.seed, self.cells)
