"""An engine on a node of a cluster, behind the face of one that is here."""

import asyncio
import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from torl._core import StopCondition
from torl.engine.host import EngineHost
from torl.engine.protocol import Engine, EngineMemoryPart
from torl.errors import ActorDiedError, EngineDiedError, EngineError
from torl.runtime.cluster import ActorHandle, Cluster
from torl.runtime.cluster.logs import gather_logs
from torl.types import SampledTurn, SamplingParameters
from torl.weights.rendezvous import Rendezvous

_CLOSE_SECONDS = 60.0  # an engine that does not end in this time is ended by force
_ANSWER_SECONDS = 20.0  # of a node that is asked for stacks, or for the last of a log


class RemoteEngine(Engine):
    """In the controller: one engine on a node. That its process or its node has gone is its death."""

    def __init__(
        self,
        cluster: Cluster,
        make: Callable[[Path], Engine],
        *,
        node: int,
        name: str,
        log: Path,
        policy_version: int,
        receivers: int,
    ) -> None:
        """Describe it; `start` starts it.

        Args:
            cluster: where it is.
            make: makes the engine, on its node, with a log file that is told. Picklable.
            node: of the cluster.
            name: as errors call it.
            log: what the engine writes to its file is added to this one.
            policy_version: of the weights that it starts with.
            receivers: of new weights, one for each of its devices.
        """
        self._cluster = cluster
        self._make = make
        self._node = node
        self._name = name
        self._log = log
        self._version = policy_version
        self._receivers = receivers
        self._role: ActorHandle | None = None
        self._gathering: asyncio.Task[None] | None = None  # the log
        self._failure: EngineError | None = None

    @property
    def policy_version(self) -> int:
        """The version that samples from now on."""
        return self._version

    async def start(self) -> None:
        """Start it on its node; waits for a node that is lost."""
        try:
            with self._dying():
                host = functools.partial(EngineHost, self._make, self._log)
                role = self._role = await self._cluster.start_actor(self._node, host, name=self._name)
                self._gathering = asyncio.create_task(gather_logs(role, self._log.parent))
                await role.call("ask", "start")
        except BaseException:
            await self.close()
            raise

    async def sample(
        self,
        token_ids: Sequence[int],
        sampling: SamplingParameters,
        request_id: str,
        *,
        end: StopCondition,
        at_line_start: bool,
        episode: int = 0,
        group: str = "",
        on_block: Callable[[str], None] | None = None,
    ) -> SampledTurn:
        """Have one turn sampled."""
        asked = (tuple(token_ids), sampling, request_id, end, at_line_start, episode, group, on_block is not None)
        with self._dying():
            async with contextlib.aclosing(self._running().stream("turn", *asked)) as told:
                async for each in told:
                    if isinstance(each, SampledTurn):
                        return each
                    if on_block is not None:
                        on_block(each)
        raise EngineError(f"{self._name} never ended request {request_id}")

    async def count_receivers(self) -> int:
        """One receiver for each device."""
        return self._receivers

    @property
    def receiver_nodes(self) -> tuple[int, ...]:
        """All are on its node."""
        return (self._node,) * self._receivers

    async def receive_weights(self, rendezvous: Rendezvous, policy_version: int, *, first: int = 0) -> None:
        """Have it take new weights."""
        await self._call("receive", rendezvous, policy_version, first)
        self._version = policy_version

    async def sleep(self) -> None:
        """Have it give its memory away."""
        await self._call("ask", "sleep")

    async def wake(self, part: EngineMemoryPart) -> None:
        """Have it take memory back."""
        await self._call("ask", "wake", part)

    async def dump_remote_stacks(self) -> None:
        """On its node, if that answers."""
        if self._role is not None:
            with contextlib.suppress(ActorDiedError, TimeoutError):
                async with asyncio.timeout(_ANSWER_SECONDS):
                    await self._role.call("dump_stacks")

    def check(self) -> None:
        """Raise if it is known to be dead."""
        self._running()

    async def watch(self) -> NoReturn:
        """Wait until it dies, hangs or is lost with its node."""
        await self._call("ask", "watch")
        raise AssertionError("an engine is watched without end")

    async def close(self) -> None:
        """End it, in good order if it still can."""
        role, self._role = self._role, None
        gathering, self._gathering = self._gathering, None
        if role is None:
            return
        try:
            with contextlib.suppress(ActorDiedError, TimeoutError):
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await role.call("close")
            if gathering is not None:
                await asyncio.wait([gathering], timeout=_ANSWER_SECONDS)  # the last of the log
        finally:
            if gathering is not None:
                gathering.cancel()
            await role.kill()

    async def _call(self, method: str, *arguments: Any) -> Any:
        with self._dying():
            return await self._running().call(method, *arguments)

    def _running(self) -> ActorHandle:
        if self._failure is not None:
            raise type(self._failure)(str(self._failure)) from self._failure
        if self._role is None:
            raise EngineError("the engine is not running: start it first")
        return self._role

    @contextlib.contextmanager
    def _dying(self) -> Iterator[None]:
        try:
            yield
        except ActorDiedError as error:
            self._failure = EngineDiedError(str(error))
            raise self._failure from error
        except EngineDiedError as error:
            self._failure = error
            raise
