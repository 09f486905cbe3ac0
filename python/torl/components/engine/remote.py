"""Engines on the nodes of a cluster: the host on the node, and the controller's handle of it."""

import asyncio
import contextlib
import functools
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Concatenate, NoReturn, ParamSpec, TypeVar

from torl.base.errors import ActorDiedError, EngineDiedError, EngineError
from torl.base.runtime.cluster import ActorHandle, Cluster
from torl.base.runtime.cluster.logs import LogFolder, gather_logs
from torl.base.runtime.processes.hangs import dump_stacks
from torl.base.types import SampledTurn, TurnRequest
from torl.components.engine.protocol import Engine, EngineMemoryPart
from torl.components.weights.rendezvous import Receivers, Rendezvous

_CLOSE_TIMEOUT_SECONDS = 60.0  # an engine that takes longer is killed
_REPLY_TIMEOUT_SECONDS = 20.0  # for stacks, and for the end of a log
_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


class EngineHost:
    """An engine and its log, on the node on which the engine runs."""

    def __init__(self, make: Callable[[Path], Engine], log: Path) -> None:
        """Make the engine.

        Args:
            make: Factory of the engine, called with a log file on this node.
            log: The controller's copy of that file, which errors name.
        """
        self._folder = LogFolder()
        self.logs = self._folder.tail
        self._log = log
        self._local_log = self._folder.path / log.name
        self._engine = make(self._local_log)

    async def start(self) -> None:
        """Start the engine."""
        with self._naming_log():
            await self._engine.start()

    async def sample(self, request: TurnRequest, announces_blocks: bool) -> AsyncGenerator[str | SampledTurn, None]:
        """Yield the code of each block that closes, if `announces_blocks`, then the turn."""
        blocks: asyncio.Queue[str | None] = asyncio.Queue()
        on_block = blocks.put_nowait if announces_blocks else None
        sampling = asyncio.ensure_future(self._engine.sample(request, on_block))
        sampling.add_done_callback(lambda _: blocks.put_nowait(None))
        try:
            while (code := await blocks.get()) is not None:
                yield code
            with self._naming_log():
                yield await sampling
        finally:
            sampling.cancel()
            with contextlib.suppress(asyncio.CancelledError, EngineError):
                await sampling  # returns when the request is aborted

    async def receive_weights(self, rendezvous: Rendezvous, policy_version: int, first: int) -> None:
        """Receive new weights."""
        with self._naming_log():
            await self._engine.receive_weights(rendezvous, policy_version, first=first)

    async def sleep(self) -> None:
        """Free the engine's device memory."""
        with self._naming_log():
            await self._engine.sleep()

    async def wake(self, part: EngineMemoryPart) -> None:
        """Allocate device memory again."""
        with self._naming_log():
            await self._engine.wake(part)

    async def watch(self) -> NoReturn:
        """Wait until the engine dies, then raise."""
        with self._naming_log():
            await self._engine.watch()

    async def dump_stacks(self) -> None:
        """Make the engine's processes dump their stacks to their log."""
        await asyncio.to_thread(dump_stacks, self._engine.processes_by_log)

    async def close(self) -> None:
        """Stop the engine."""
        await self._engine.close()
        self._folder.close()

    @contextlib.contextmanager
    def _naming_log(self) -> Iterator[None]:
        """Name the controller's log in errors, instead of the node's."""
        try:
            yield
        except EngineError as error:
            raise type(error)(str(error).replace(str(self._local_log), str(self._log))) from error


class RemoteEngine(Engine):
    """The controller's handle of an engine on another node. Loss of its process or node counts as an engine failure."""

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
        """Describe the engine; `start` starts it.

        Args:
            cluster: Cluster of the node.
            make: Picklable factory of the engine, called on the node with a log file.
            node: Number of the node.
            name: Name of the engine in errors.
            log: File that the engine's output is appended to.
            policy_version: Version of the initial weights.
            receivers: Number of receivers of new weights, one for each device.
        """
        self._cluster = cluster
        self._host = functools.partial(EngineHost, make, log)
        self._node = node
        self._name = name
        self._log = log
        self._version = policy_version
        self._receivers = receivers
        self._actor: ActorHandle | None = None
        self._log_task: asyncio.Task[None] | None = None
        self._failure: EngineError | None = None

    @property
    def policy_version(self) -> int:
        return self._version

    async def start(self) -> None:
        try:
            with self._recording_death():
                self._actor = await self._cluster.start_actor(self._node, self._host, name=self._name)
                self._log_task = asyncio.create_task(gather_logs(self._actor, self._log.parent))
                await self._call(EngineHost.start)
        except BaseException:
            await self.close()
            raise

    async def sample(self, request: TurnRequest, on_block: Callable[[str], None] | None = None) -> SampledTurn:
        with self._recording_death():
            events = self._running().stream(EngineHost.sample.__name__, request, on_block is not None)
            async with contextlib.aclosing(events):
                async for event in events:
                    if isinstance(event, SampledTurn):
                        return event
                    if on_block is not None:
                        on_block(event)
        raise EngineError(f"{self._name} never ended request {request.id}")

    async def select_receivers(self) -> Receivers:
        return Receivers(self._receivers, (self._node,) * self._receivers, changed=True)

    async def receive_weights(self, rendezvous: Rendezvous, policy_version: int, *, first: int = 0) -> None:
        await self._call(EngineHost.receive_weights, rendezvous, policy_version, first)
        self._version = policy_version

    async def sleep(self) -> None:
        await self._call(EngineHost.sleep)

    async def wake(self, part: EngineMemoryPart) -> None:
        await self._call(EngineHost.wake, part)

    async def dump_remote_stacks(self) -> None:
        if self._actor is not None:
            with contextlib.suppress(ActorDiedError, TimeoutError):
                async with asyncio.timeout(_REPLY_TIMEOUT_SECONDS):
                    await self._actor.call(EngineHost.dump_stacks.__name__)

    def check(self) -> None:
        self._running()

    async def watch(self) -> NoReturn:
        await self._call(EngineHost.watch)
        raise AssertionError("unreachable: watching an engine only ends with an error")

    async def close(self) -> None:
        actor, self._actor = self._actor, None
        log_task, self._log_task = self._log_task, None
        if actor is None:
            return
        try:
            with contextlib.suppress(ActorDiedError, TimeoutError):
                async with asyncio.timeout(_CLOSE_TIMEOUT_SECONDS):
                    await actor.call(EngineHost.close.__name__)
            if log_task is not None:
                await asyncio.wait([log_task], timeout=_REPLY_TIMEOUT_SECONDS)  # the end of the log
        finally:
            if log_task is not None:
                log_task.cancel()
            await actor.kill()

    async def _call(
        self,
        method: Callable[Concatenate[EngineHost, _Parameters], Awaitable[_Result]],
        *arguments: _Parameters.args,
        **_: _Parameters.kwargs,
    ) -> _Result:
        """Call a method of the host."""
        with self._recording_death():
            result: _Result = await self._running().call(method.__name__, *arguments)
        return result

    def _running(self) -> ActorHandle:
        if self._failure is not None:
            raise type(self._failure)(str(self._failure)) from self._failure
        if self._actor is None:
            raise EngineError("the engine is not running: start it first")
        return self._actor

    @contextlib.contextmanager
    def _recording_death(self) -> Iterator[None]:
        try:
            yield
        except ActorDiedError as error:
            self._failure = EngineDiedError(str(error))
            raise self._failure from error
        except EngineDiedError as error:
            self._failure = error
            raise
