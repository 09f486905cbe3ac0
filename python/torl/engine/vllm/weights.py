"""The weights of a running engine: which version samples, taking new ones, lending their memory."""

import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from torl.engine.protocol import EngineMemoryPart
from torl.engine.vllm.options import VllmOptions
from torl.errors import EngineError
from torl.weights.rendezvous import Rendezvous

_TAGS = {"weights": "weights", "cache": "kv_cache"}  # as vLLM names what it wakes


class EngineWeights:
    """What is known of the weights that vLLM's processes hold."""

    def __init__(self, version: int, options: VllmOptions) -> None:
        self._version = version
        self._versions = [version]  # that sampled, by how often the engine was paused and resumed
        self._asleep = False
        self._options = options
        self._settled = asyncio.Event()  # cleared while weights arrive
        self._settled.set()
        self.unusable: str | None = None
        """Why no token may be sampled: the weights may be of two versions."""

    @property
    def version(self) -> int:
        """The version of the weights that sample now, or would if the engine were awake."""
        return self._version

    @property
    def is_receiving(self) -> bool:
        """Whether weights arrive now: no turn may begin."""
        return not self._settled.is_set()

    async def wait_until_received(self) -> None:
        """Wait until no weights arrive."""
        await self._settled.wait()

    def spans(self, pauses: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
        """Versions of a turn, (version, first token it sampled), from (pauses of the engine so far, that token)."""
        return tuple((self._versions[paused], first) for paused, first in pauses)

    async def receive(self, llm: Any, rendezvous: Rendezvous, version: int, *, first: int, live: bool) -> None:
        """Take weights. The workers are numbered from `first` on; `live` says whether turns are being sampled.

        Turns that an engine was asked for in its sleep go on waiting. Where it raises, the engine is `unusable`.
        """
        live = live and not self._asleep
        self._settled.clear()
        try:
            if live:
                mode = "wait" if self._options.on_weight_update == "drain" else "keep"
                await llm.pause_generation(mode=mode, clear_cache=False)
            await llm.collective_rpc("torl_receive_weights", args=(asdict(rendezvous), first))
            keeps_cache = live and self._options.keeps_stale_cache
            if not keeps_cache and not await llm.reset_prefix_cache(reset_running_requests=True):
                raise EngineError("cached prefixes of the old policy are still in use")
            self._version = version
            if live:
                self._versions.append(version)
                await llm.resume_generation()
            elif not self._asleep:
                self._versions[-1] = version
        except BaseException:  # cancelled in the middle it holds weights of two versions as well
            self.unusable = f"it did not take the weights of version {version}"
            raise
        finally:
            self._settled.set()

    async def sleep(self, llm: Any, *, on_cpu: bool) -> None:
        """Sample nothing more, and drop the weights and the cache where there is a GPU."""
        # Level 1 would copy the weights to CPU memory, only for others to take their place; level 0 moves nothing.
        await llm.sleep(level=0 if on_cpu else 2)
        self._asleep = True

    async def wake(self, llm: Any, part: EngineMemoryPart, *, on_cpu: bool) -> None:
        """Take memory back for the weights, then for the cache, and sample again."""
        if part == "cache":
            # vLLM resumes its scheduler when all memory is there again.
            self._versions.append(self.version)
            self._asleep = False
        if not on_cpu or part == "cache":
            await llm.wake_up(["scheduling" if on_cpu else _TAGS[part]])
