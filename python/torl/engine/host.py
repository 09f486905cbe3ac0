"""An engine on the node where it computes, and how it is called from elsewhere."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from torl._core import StopCondition
from torl.engine.protocol import Engine
from torl.errors import EngineError
from torl.runtime.cluster.logs import LogFolder
from torl.runtime.processes.stacks import dump_stacks
from torl.types import SampledTurn, SamplingParameters
from torl.weights.rendezvous import Rendezvous


class EngineHost:
    """On the node: an engine, its turns as what is told of them, and its log."""

    def __init__(self, make: Callable[[Path], Engine], log: Path) -> None:
        """`make` makes the engine with a log file of this node; `log` is where the controller gathers it."""
        self._folder = LogFolder()
        self.logs = self._folder.tail
        self._log = log
        self._log_here = self._folder.path / log.name
        self._engine = make(self._log_here)

    async def ask(self, method: str, *arguments: Any) -> Any:
        """What a method of the engine returns."""
        with self._naming_log():
            return await getattr(self._engine, method)(*arguments)

    async def receive(self, rendezvous: Rendezvous, policy_version: int, first: int) -> None:
        """Take new weights."""
        with self._naming_log():
            await self._engine.receive_weights(rendezvous, policy_version, first=first)

    async def dump_stacks(self) -> None:
        """Have the engine's processes write what they are doing to their log."""
        await asyncio.to_thread(dump_stacks, self._engine.processes_by_log)

    async def close(self) -> None:
        """End the engine."""
        await self._engine.close()
        self._folder.close()

    @contextlib.contextmanager
    def _naming_log(self) -> Iterator[None]:
        """Errors name the log that a reader finds."""
        try:
            yield
        except EngineError as error:
            raise type(error)(str(error).replace(str(self._log_here), str(self._log))) from error

    async def turn(
        self,
        token_ids: Sequence[int],
        sampling: SamplingParameters,
        request_id: str,
        end: StopCondition,
        at_line_start: bool,
        episode: int,
        group: str,
        announced: bool,
    ) -> AsyncGenerator[str | SampledTurn, None]:
        """The code of each block that closes, where that is `announced`, then the turn."""
        blocks: asyncio.Queue[str | None] = asyncio.Queue()
        sampled = asyncio.ensure_future(
            self._engine.sample(
                token_ids,
                sampling,
                request_id,
                end=end,
                at_line_start=at_line_start,
                episode=episode,
                group=group,
                on_block=blocks.put_nowait if announced else None,
            )
        )
        sampled.add_done_callback(lambda _: blocks.put_nowait(None))
        try:
            while (code := await blocks.get()) is not None:
                yield code
            with self._naming_log():
                yield await sampled
        finally:
            sampled.cancel()
            with contextlib.suppress(asyncio.CancelledError, EngineError):
                await sampled  # its request is given up when this returns
