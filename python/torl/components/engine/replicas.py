"""Replicas of one engine: they route episodes, and restart a replica that dies."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

from torl.base.errors import EngineDiedError, EngineError
from torl.base.runtime.processes.children import first_line
from torl.base.runtime.processes.supervision import task_group
from torl.base.types import SampledTurn, TurnRequest
from torl.components.engine.protocol import NO_POLICY, Engine, EngineMemoryPart
from torl.components.engine.routing import Router
from torl.components.weights.rendezvous import Receivers, Rendezvous

_logger = logging.getLogger(__name__)


@dataclass(eq=False, slots=True)
class _ReplicaSlot:
    """The position of one engine and its replacements."""

    number: int
    engine: Engine
    up: bool = False
    restarts: int = 0


class Replicas(Engine):
    """Engines of one policy. An episode stays on its engine; the turns of a dead engine are sampled on another.

    A resampled turn has the same prefix and seed, and the earlier turns of its episode are kept. A dead engine is
    restarted in the background. Once weights have been published, a restarted engine loads none from disk, and samples
    nothing until it receives them (`needs_weights`), at the latest with the next publication. An engine that hangs,
    holds weights of two versions or died too often ends the run.
    """

    def __init__(
        self,
        make: Callable[[int, bool], Engine],
        count: int,
        *,
        max_restarts: int,
        policy_version: int,
        shares_devices: bool,
        load_weights: bool = True,
    ) -> None:
        """Describe the engines; `start` starts them.

        Args:
            make: Factory of the engine with a number. Its second argument is whether the engine loads weights.
            count: Number of engines.
            max_restarts: Maximum number of restarts of each engine.
            policy_version: Version of the model's weights.
            shares_devices: Whether the learner has the engines' devices from `sleep` to `wake`, so that none can start.
            load_weights: Whether the engines load the model's weights. Otherwise they wait for others.
        """
        self._make = make
        self._max_restarts = max_restarts
        self._load_weights = load_weights
        self._version = policy_version if load_weights else NO_POLICY
        self._shares_devices = shares_devices
        self._slots = [_ReplicaSlot(number, make(number, load_weights)) for number in range(count)]
        self._router = Router()
        self._idle = _IdleClock()
        self._supervisors: list[asyncio.Task[None]] = []
        self._selected: list[tuple[_ReplicaSlot, Receivers]] = []  # for the next transfer
        self._connected: list[Engine] = []  # engines of the last transfer, which may still be connected
        self._asleep = False
        self._failure: Exception | None = EngineError("the engine is not running: start it first")
        self._change = asyncio.Event()  # replaced after each change of the state above

    @property
    def engines(self) -> tuple[Engine, ...]:
        """The engine in each slot, alive or being replaced."""
        return tuple(slot.engine for slot in self._slots)

    @property
    def policy_version(self) -> int:
        return self._version

    @property
    def replica_count(self) -> int:
        return len(self._slots)

    @property
    def is_serving(self) -> bool:
        return any(map(self._is_serving, self._slots))

    @property
    def needs_weights(self) -> bool:
        return any(slot.up and not self._is_current(slot) for slot in self._slots)

    @property
    def processes_by_log(self) -> Mapping[Path, Sequence[int]]:
        return {log: pids for slot in self._slots for log, pids in slot.engine.processes_by_log.items()}

    async def dump_remote_stacks(self) -> None:
        await asyncio.gather(*(slot.engine.dump_remote_stacks() for slot in self._slots))

    @property
    def idle_seconds(self) -> float:
        return self._idle.seconds

    async def start(self) -> None:
        """Start all engines at once. On failure it raises the first error and leaves nothing running."""
        try:
            async with task_group() as starts:
                for slot in self._slots:
                    starts.create_task(slot.engine.start())
        except BaseException:
            await self.close()
            raise
        for slot in self._slots:
            slot.up = True
        self._failure = None
        self._idle.start()
        self._supervisors = [asyncio.create_task(self._supervise(slot)) for slot in self._slots]

    async def sample(self, request: TurnRequest, on_block: Callable[[str], None] | None = None) -> SampledTurn:
        """Sample one turn on the engine of its episode or its `replica`, or on another if that engine dies."""
        with self._idle.request():
            while True:
                slot = await self._slot_of(request)
                engine = slot.engine
                try:
                    return replace(await engine.sample(request, on_block), replica=slot.number)
                except EngineDiedError:
                    if engine is slot.engine:
                        slot.up = False  # before its supervisor notices

    def forget(self, episode: int) -> None:
        self._router.forget(episode)

    async def select_receivers(self) -> Receivers:
        """Choose the engines that are up. The others receive the next weights."""
        await self._until(lambda: any(slot.up for slot in self._slots))
        self._selected = [(slot, await slot.engine.select_receivers()) for slot in self._slots if slot.up]
        return Receivers(
            count=sum(receivers.count for _, receivers in self._selected),
            nodes=tuple(node for _, receivers in self._selected for node in receivers.nodes),
            changed=self._connected != [slot.engine for slot, _ in self._selected],
        )

    async def receive_weights(self, rendezvous: Rendezvous, policy_version: int, *, first: int = 0) -> None:
        """Receive new weights on the selected engines. Their receivers are numbered in order."""
        self._version, self._load_weights = policy_version, False
        try:
            async with task_group() as transfers:
                for slot, receivers in self._selected:
                    transfers.create_task(slot.engine.receive_weights(rendezvous, policy_version, first=first))
                    first += receivers.count
            self._connected = [slot.engine for slot, _ in self._selected]
        finally:
            self._notify()

    async def sleep(self) -> None:
        """Free the memory of all devices, once no engine is starting."""
        if self._shares_devices:
            await self._until(lambda: all(slot.up for slot in self._slots))
            self._asleep = True
        await asyncio.gather(*(slot.engine.sleep() for slot in self._slots if slot.up))

    async def wake(self, part: EngineMemoryPart) -> None:
        await asyncio.gather(*(slot.engine.wake(part) for slot in self._slots if slot.up))
        self._asleep = part == "weights"

    def check(self) -> None:
        """Raise if an engine failed for good."""
        if self._failure is not None:
            if isinstance(self._failure, EngineError):
                raise type(self._failure)(str(self._failure)) from self._failure
            raise self._failure  # a defect

    async def close(self) -> None:
        self._fail(EngineError("the engine was closed"))
        supervisors, self._supervisors = self._supervisors, []
        for supervisor in supervisors:
            supervisor.cancel()
        await asyncio.gather(*supervisors, return_exceptions=True)
        await asyncio.gather(*(slot.engine.close() for slot in self._slots))

    def _is_serving(self, slot: _ReplicaSlot) -> bool:
        return slot.up and self._is_current(slot)

    def _is_current(self, slot: _ReplicaSlot) -> bool:
        return slot.engine.policy_version == self._version != NO_POLICY

    async def _slot_of(self, request: TurnRequest) -> _ReplicaSlot:
        assigned = self._router.assigned_engine(request.episode) if request.replica is None else request.replica
        if assigned is not None and self._failure is None and self._is_serving(self._slots[assigned]):
            return self._slots[assigned]  # without a look at the others, which may be thousands
        await self._until(lambda: self.is_serving)
        serving = [slot.number for slot in self._slots if self._is_serving(slot)]
        return self._slots[self._router.route(request.episode, request.group, serving)]

    async def _until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition. Raises when an engine fails for good."""
        while True:
            self.check()
            if condition():
                return
            await self._change.wait()

    def _notify(self) -> None:
        self._change.set()
        self._change = asyncio.Event()

    def _fail(self, error: Exception) -> None:
        self._failure = self._failure or error
        self._notify()

    async def _supervise(self, slot: _ReplicaSlot) -> None:
        """Restart the engine of a slot whenever it dies, as often as allowed."""
        try:
            while True:
                try:
                    await slot.engine.watch()
                except EngineDiedError as death:
                    slot.up = False
                    await self._replace(slot, death)
        except Exception as error:
            self._fail(error)

    async def _replace(self, slot: _ReplicaSlot, death: EngineError) -> None:
        await slot.engine.close()
        while not slot.up:
            if self._asleep:
                self._give_up(death, "while the learner had its devices")
            if slot.restarts == self._max_restarts:
                self._give_up(death, f"after {slot.restarts} restarts (cluster.max_restarts)")
            slot.restarts += 1
            _logger.warning(
                "restarting engine %d (%d of %d): %s",
                slot.number,
                slot.restarts,
                self._max_restarts,
                first_line(death),
            )
            slot.engine = self._make(slot.number, self._load_weights)
            try:
                await slot.engine.start()
                slot.up = True
            except EngineError as error:
                death = error
        self._notify()

    def _give_up(self, death: EngineError, reason: str) -> NoReturn:
        first, _, rest = str(death).partition("\n")
        raise EngineError(f"{first} ({reason})\n{rest}") from death


class _IdleClock:
    """The time in which no request is pending."""

    def __init__(self) -> None:
        self._pending = 0
        self._seconds = 0.0
        self._since: float | None = None  # None while the clock is stopped

    @property
    def seconds(self) -> float:
        return self._seconds + (0.0 if self._since is None else time.perf_counter() - self._since)

    def start(self) -> None:
        self._since = time.perf_counter()

    @contextmanager
    def request(self) -> Iterator[None]:
        """Stop the clock while a request is pending."""
        self._seconds, self._since = self.seconds, None
        self._pending += 1
        try:
            yield
        finally:
            self._pending -= 1
            if self._pending == 0:
                self._since = time.perf_counter()
