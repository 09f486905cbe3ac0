"""The Python sandbox of one machine, with a limit on the memory of its programs, and the sandboxes of a cluster."""

import asyncio
import functools
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from secrets import token_hex
from typing import Any, Self, Unpack

from torl.base.errors import ClusterError, SandboxError
from torl.base.runtime.cluster import Cluster
from torl.base.runtime.cluster.per_node import PerNode
from torl.base.types import OutcomeStatus
from torl_sandbox import Execution, InterpreterSession, RunOptions, SandboxPool, StatefulInterpreter, prepare_guest
from torl_sandbox.guest import Progress
from torl_sandbox.session import Session

_STATE_BYTES_PER_WORKER = 128 << 20
"""Maximum size of the program states that are kept between cells: thousands of usual ones."""
_PROGRAMS_PER_WORKER = 2  # running or next in line, so that no worker waits for the event loop

_UNREPEATABLE = (OutcomeStatus.TIMEOUT, OutcomeStatus.CRASH)
"""Ends of a cell that depend on the load of the machine. Equal programs may have other states after them."""


@dataclass(frozen=True, slots=True)
class ProgramState:
    """The identity of a program's state. Equal programs share a state, unless their cells have other ends."""

    seed: int
    cells: tuple[str, ...] = ()
    """The cells that were run."""
    owner: str = ""
    """Token of the program that alone has this state; empty if it depends on the cells alone."""

    def after(self, code: str, execution: Execution, token: str) -> "ProgramState":
        """Return the state after a cell of the program with this token."""
        owner = token if execution.status in _UNREPEATABLE else self.owner
        return ProgramState(self.seed, (*self.cells, code), owner)


@dataclass(slots=True)
class Program(InterpreterSession):
    """A program, identified by its state."""

    run_cell: Callable[[str, ProgramState, str], Awaitable[Execution]]
    """Runs a cell in a state, for the program with a token."""
    state: ProgramState
    token: str = field(default_factory=token_hex)

    async def run_async(self, code: str) -> Execution:
        execution = await self.run_cell(code, self.state, self.token)
        self.state = self.state.after(code, execution, self.token)
        return execution

    def fork(self) -> Self:
        return type(self)(self.run_cell, self.state)


class SandboxHost(StatefulInterpreter):
    """A pool, and the states of programs between their cells.

    The size of the states is bounded for any number of programs. A program whose state was evicted, or that another
    machine has begun, is executed again, cells that reached their time limit included.
    """

    def __init__(self, make: Callable[[], SandboxPool]) -> None:
        """Set the function that makes the pool at the start."""
        self._make = make
        self._pool: SandboxPool | None = None
        self._programs: OrderedDict[ProgramState, Session] = OrderedDict()  # idle programs
        self._kept_bytes = self._max_bytes = 0
        self._in_use = asyncio.Semaphore(0)

    async def start(self, progress: Progress | None = None) -> None:
        """Prepare the guest (once per machine), start the workers and run their self-test.

        Raises:
            SandboxError: The guest is missing, the workers do not start, or the self-test fails.
        """
        await asyncio.to_thread(prepare_guest, progress)
        self._pool = await asyncio.to_thread(self._make)
        self._max_bytes = _STATE_BYTES_PER_WORKER * self._pool.workers
        self._in_use = asyncio.Semaphore(_PROGRAMS_PER_WORKER * self._pool.workers)
        await self.check()

    async def run_async(self, code: str, **options: Unpack[RunOptions]) -> Execution:
        """Run `code` from a fresh state."""
        return await self._running().run_async(code, **options)

    async def run_with(self, code: str, options: RunOptions) -> Execution:
        """Run `code` from a fresh state, with options that crossed to this node."""
        return await self.run_async(code, **options)

    def session(self, *, seed: int = 0) -> InterpreterSession:
        """Open a session."""
        return Program(self.run_cell, ProgramState(seed))

    async def run_cell(self, code: str, state: ProgramState, token: str) -> Execution:
        """Run a cell in a state, whose cells are executed again if it is not kept here.

        Args:
            code: The cell.
            state: State before it.
            token: Token of the program.
        """
        pool = self._running()
        async with self._in_use:  # programs that wait for a worker hold no state
            kept = self._programs.get(state)
            if kept is None:
                program = pool.session(seed=state.seed)
                for cell in state.cells:
                    await program.run_async(cell)
            else:
                program = kept.fork()
            execution = await program.run_async(code)
            self._keep(state.after(code, execution, token), program)
        return execution

    def _keep(self, state: ProgramState, program: Session) -> None:
        if state in self._programs:
            return  # another sample has run the same cells
        self._programs[state] = program
        self._kept_bytes += program.state_bytes
        while len(self._programs) > 1 and self._kept_bytes > self._max_bytes:
            self._kept_bytes -= self._programs.popitem(last=False)[1].state_bytes

    async def check(self) -> dict[str, int]:
        """Run the self-test of the pool and return its counts."""
        pool = self._running()
        await asyncio.to_thread(pool.self_test)
        return pool.stats()

    def stats(self) -> dict[str, int]:
        """Return the counts of the pool: `SandboxPool.stats`."""
        return self._running().stats()

    async def close(self) -> None:
        """Stop the workers."""
        pool, self._pool = self._pool, None
        if pool is not None:
            await asyncio.to_thread(pool.close)

    def _running(self) -> SandboxPool:
        if self._pool is None:
            raise SandboxError("the sandbox is not running: start it first")
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

    async def run_async(self, code: str, **options: Unpack[RunOptions]) -> Execution:
        """Run `code` from a fresh state on the node of its code, input and seed."""
        key = f"{options.get('seed', 0)} {options.get('stdin', '')!r} {code}"
        return await self._call(key, "run_with", code, options)

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
