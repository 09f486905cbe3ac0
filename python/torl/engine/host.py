"""An engine on the node where it computes, and how it is called from elsewhere."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Sequence

from torl._core import TurnEnd
from torl.engine.protocol import Engine
from torl.errors import EngineError
from torl.types import SampledTurn, SamplingParameters
from torl.weights.rendezvous import Rendezvous


class EngineHost:
    """On the node: an engine, and its turns as what is told of them."""

    def __init__(self, make: Callable[[], Engine]) -> None:
        engine = self._engine = make()
        self.start, self.watch, self.close = engine.start, engine.watch, engine.close
        self.sleep, self.wake = engine.sleep, engine.wake

    async def receive(self, rendezvous: Rendezvous, policy_version: int, first: int) -> None:
        """Take new weights."""
        await self._engine.receive_weights(rendezvous, policy_version, first=first)

    async def turn(
        self,
        token_ids: Sequence[int],
        sampling: SamplingParameters,
        request_id: str,
        end: TurnEnd,
        at_line_start: bool,
        episode: int,
        group: str,
        announced: bool,
    ) -> AsyncGenerator[str | SampledTurn, None]:
        """The code of each block that closes, where that is `announced`, then the turn."""
        blocks: asyncio.Queue[str] = asyncio.Queue()
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
        try:
            while announced and not sampled.done():
                block = asyncio.ensure_future(blocks.get())
                await asyncio.wait([sampled, block], return_when=asyncio.FIRST_COMPLETED)
                if block.done():
                    yield block.result()
                block.cancel()
            yield await sampled
        finally:
            sampled.cancel()
            with contextlib.suppress(asyncio.CancelledError, EngineError):
                await sampled  # its request is given up when this returns
