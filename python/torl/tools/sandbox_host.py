"""The Python sandbox of one machine, with a limit on the memory of its programs."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Self

from torl.errors import SandboxError
from torl.sandbox import Execution, InterpreterSession, SandboxPool, StatefulInterpreter, prepare_guest
from torl.sandbox.guest import Progress
from torl.sandbox.session import Session

_STATE_BYTES_PER_WORKER = 128 << 20
"""Maximum size of the program states that are kept between cells: thousands of usual ones."""
_PROGRAMS_PER_WORKER = 2  # running or next in line, so that no worker waits for the event loop

_Cells = tuple[str, ...]


@dataclass(slots=True)
class Program(InterpreterSession):
    """A program, identified by the cells that it has run."""

    run_cell: Callable[[str, int, _Cells], Awaitable[Execution]]
    """Runs a cell with a seed after earlier cells."""
    seed: int
    cells: _Cells = ()

    async def run_async(self, code: str) -> Execution:
        execution = await self.run_cell(code, self.seed, self.cells)
        self.cells = (*self.cells, code)
        return execution

    def fork(self) -> Self:
        return type(self)(self.run_cell, self.seed, self.cells)


class SandboxHost(StatefulInterpreter):
    """A pool, and the states of programs between their cells.

    The size of the states is bounded for any number of programs. A program whose state was evicted, or that another
    machine has begun, is executed again.
    """

    def __init__(self, make: Callable[[], SandboxPool]) -> None:
        """Set the function that makes the pool at the start."""
        self._make = make
        self._pool: SandboxPool | None = None
        self._programs: OrderedDict[tuple[int, _Cells], Session] = OrderedDict()  # idle programs
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

    async def run_async(self, code: str, seed: int = 0) -> Execution:
        """Run `code` from a fresh state."""
        return await self._running().run_async(code, seed=seed)

    def session(self, *, seed: int = 0) -> InterpreterSession:
        """Open a session."""
        return Program(self.run_cell, seed)

    async def run_cell(self, code: str, seed: int, earlier: _Cells) -> Execution:
        """Run a cell after the earlier cells, which are executed again if their state is not kept here."""
        pool = self._running()
        async with self._in_use:  # programs that wait for a worker hold no state
            kept = self._programs.get((seed, earlier))
            if kept is None:
                program = pool.session(seed=seed)
                for cell in earlier:
                    await program.run_async(cell)
            else:
                program = kept.fork()
            execution = await program.run_async(code)
            self._keep((seed, (*earlier, code)), program)
        return execution

    def _keep(self, name: tuple[int, _Cells], program: Session) -> None:
        if name in self._programs:
            return  # another sample has run the same cells
        self._programs[name] = program
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
