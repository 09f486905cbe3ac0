"""The Python sandbox on every node of a cluster, behind the face of an interpreter."""

import asyncio
import functools
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

from torl.errors import ClusterError, SandboxError
from torl.runtime.cluster import Cluster
from torl.runtime.cluster.per_node import PerNode
from torl.sandbox import Execution, InterpreterSession, SandboxPool, StatefulInterpreter, prepare_guest
from torl.sandbox.session import Session

_KEPT_BYTES = 256 << 20
"""Of the states of programs that a node keeps; what is let go of is run again."""


class SandboxHost:
    """On a node: a pool. A program in parts is known by its parts, so that any node can go on with it."""

    def __init__(self, pool: Callable[[], SandboxPool]) -> None:
        """Start nothing yet; `pool` makes the pool."""
        self._make = pool
        self._pool: SandboxPool | None = None
        self._programs: OrderedDict[tuple[int, tuple[str, ...]], Session] = OrderedDict()  # that nobody runs any more
        self._kept_bytes = 0

    async def start(self) -> None:
        """Prepare the guest (once for a machine), and start the workers."""
        await asyncio.to_thread(prepare_guest)
        self._pool = await asyncio.to_thread(self._make)
        await self.check()

    async def run(self, code: str, seed: int) -> Execution:
        """Run a program from a fresh state."""
        return await self._running().run_async(code, seed=seed)

    async def run_cell(self, code: str, seed: int, earlier: tuple[str, ...]) -> Execution:
        """Run a part after the parts before it, which run again if their state is not here."""
        kept = self._programs.get((seed, earlier))
        if kept is None:
            program = self._running().session(seed=seed)
            for part in earlier:
                await program.run_async(part)
        else:
            program = kept.fork()
        execution = await program.run_async(code)
        self._keep((seed, (*earlier, code)), program)
        return execution

    def _keep(self, name: tuple[int, tuple[str, ...]], program: Session) -> None:
        if name in self._programs:
            return  # another sample has come the same way
        self._programs[name] = program
        self._kept_bytes += program.state_bytes
        while len(self._programs) > 1 and self._kept_bytes > _KEPT_BYTES:
            self._kept_bytes -= self._programs.popitem(last=False)[1].state_bytes

    async def check(self) -> dict[str, int]:
        """Run the pool's self-test; returns its counts."""
        pool = self._running()
        await asyncio.to_thread(pool.self_test)
        return pool.stats()

    async def close(self) -> None:
        """End the workers."""
        pool, self._pool = self._pool, None
        if pool is not None:
            await asyncio.to_thread(pool.close)

    def _running(self) -> SandboxPool:
        if self._pool is None:
            raise SandboxError("the sandbox of this node is not running")
        return self._pool


class ClusterSandbox(StatefulInterpreter):
    """The pools of all nodes. Equal programs run on one node, where they are run once; a lost node's run elsewhere."""

    def __init__(self, pool: Callable[[], SandboxPool]) -> None:
        """Start nothing yet; `pool` makes the pool of a node. Picklable."""
        self._hosts = PerNode(functools.partial(SandboxHost, pool), "the sandbox")
        self._counts: Counter[str] = Counter()

    async def start(self, cluster: Cluster) -> None:
        """Start a pool on every node."""
        await self._hosts.start(cluster)

    async def run_async(self, code: str, *, seed: int = 0) -> Execution:
        """Run `code` from a fresh state on the node that it belongs to."""
        return await self.ask(f"{seed} {code}", "run", code, seed)

    def session(self, *, seed: int = 0) -> InterpreterSession:
        """A program in parts. The episodes of one problem have one seed, and so one node."""
        return _Program(self, seed)

    async def ask(self, key: str, method: str, *arguments: Any) -> Execution:
        """What the host of the key's node answers."""
        try:
            execution: Execution = await self._hosts.call(key, method, *arguments)
        except ClusterError as error:
            raise SandboxError(str(error)) from error
        return execution

    async def check(self) -> None:
        """Run the self-test on all nodes that are there, and take their counts."""
        self._counts = Counter()
        for counts in await self._hosts.call_all("check"):
            self._counts.update(counts)

    def stats(self) -> dict[str, int]:
        """The counts of all nodes, as of the last `check`."""
        return dict(self._counts)

    async def close(self) -> None:
        """End all pools."""
        await self._hosts.close()


@dataclass(slots=True)
class _Program(InterpreterSession):
    """A program on some node, as the parts that it has had."""

    nodes: ClusterSandbox
    seed: int
    parts: tuple[str, ...] = ()

    async def run_async(self, code: str) -> Execution:
        execution = await self.nodes.ask(str(self.seed), "run_cell", code, self.seed, self.parts)
        self.parts = (*self.parts, code)
        return execution

    def fork(self) -> Self:
        return type(self)(self.nodes, self.seed, self.parts)
