"""Engines side by side behind the face of one: a router for episodes, and a replacement for an engine that dies."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from torl._core import StopCondition
from torl.engine.idle import IdleClock
from torl.engine.protocol import NO_POLICY, Engine, EngineMemoryPart
from torl.engine.routing import Router
from torl.errors import EngineDiedError, EngineError
from torl.runtime.processes.children import first_line
from torl.runtime.processes.supervision import first_error
from torl.types import SampledTurn, SamplingParameters
from torl.weights.rendezvous import Rendezvous

_logger = logging.getLogger(__name__)


class _ReplicaSlot:
    """The place of one engine, and of those that replace it."""

    def __init__(self, number: int, engine: Engine) -> None:
        self.number = number
        self.engine = engine
        self.up = False
        self.restarts = 0


class Replicas(Engine):
    """Engines of one policy. An episode stays with its engine; the turn that an engine dies with is sampled elsewhere.

    A turn that is sampled again has the same prefix and seed, and what the episode had before is kept: nothing is lost.
    An engine that died is started again in the background. Where weights have been published, it reads none, and
    samples nothing (`lacks_weights`) until they are sent again, by the next publication at the latest. One that hangs,
    holds weights of two versions, or has died too often ends the run.
    """

    def __init__(
        self,
        make: Callable[[int, bool], Engine],
        count: int,
        *,
        restarts: int,
        policy_version: int,
        shares_devices: bool,
        load_weights: bool = True,
    ) -> None:
        """Start nothing yet.

        Args:
            make: makes the engine with this number, not started, which loads the model's weights or none.
            count: of the engines.
            restarts: how often each of them may be started again.
            policy_version: of the model's weights.
            shares_devices: whether the learner has the engines' devices from `sleep` to `wake`, so that none can start.
            load_weights: whether the engines begin with the model's weights; where not, they wait for others.
        """
        self._make = make
        self._restarts = restarts
        self._loads_weights = load_weights
        self._version = policy_version if load_weights else NO_POLICY
        self._lends_devices = shares_devices
        self._seats = [_ReplicaSlot(number, make(number, load_weights)) for number in range(count)]
        self._routes = Router()
        self._idle = IdleClock()
        self._keepers: list[asyncio.Task[None]] = []
        self._receivers: list[_ReplicaSlot] = []
        self._connected: list[Engine] = []  # took the last weights, and may be connected still
        self._asleep = False
        self._failure: Exception | None = EngineError("the engine is not running: start it first")
        self._change = asyncio.Event()  # another one after each change of the above

    @property
    def engines(self) -> tuple[Engine, ...]:
        """The engine on each seat, whether it lives or is being replaced."""
        return tuple(seat.engine for seat in self._seats)

    @property
    def policy_version(self) -> int:
        """The version that samples from now on."""
        return self._version

    @property
    def is_serving(self) -> bool:
        """Whether any engine samples."""
        return bool(self._serving())

    @property
    def needs_weights(self) -> bool:
        """Whether an engine was started again and waits for the current weights."""
        return any(seat.up and not self._is_current(seat) for seat in self._seats)

    @property
    def processes_by_log(self) -> Mapping[Path, Sequence[int]]:
        """Those of all engines."""
        return {log: pids for seat in self._seats for log, pids in seat.engine.processes_by_log.items()}

    async def dump_remote_stacks(self) -> None:
        """On all nodes at once."""
        await asyncio.gather(*(seat.engine.dump_remote_stacks() for seat in self._seats))

    @property
    def idle_seconds(self) -> float:
        """How long none of the engines has held a request since the start."""
        return self._idle.seconds

    async def start(self) -> None:
        """Start all engines at once; raises what the first that does not start raises, and leaves nothing running."""
        try:
            async with asyncio.TaskGroup() as starts:
                for seat in self._seats:
                    starts.create_task(seat.engine.start())
        except BaseException as error:
            await self.close()
            if isinstance(error, ExceptionGroup):
                raise first_error(error) from error
            raise
        for seat in self._seats:
            seat.up = True
        self._failure = None
        self._idle.start()
        self._keepers = [asyncio.create_task(self._keep(seat)) for seat in self._seats]

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
        """Sample one turn on the engine of its episode; on another one, should that die meanwhile."""
        with self._idle.request():
            while True:
                seat = await self._seat_of(episode, group)
                engine = seat.engine
                try:
                    return await engine.sample(
                        token_ids,
                        sampling,
                        request_id,
                        end=end,
                        at_line_start=at_line_start,
                        episode=episode,
                        group=group,
                        on_block=on_block,
                    )
                except EngineDiedError:
                    if engine is seat.engine:
                        seat.up = False  # its keeper hears of it as well, a moment later

    def forget(self, episode: int) -> None:
        """The episode has ended: its engine has room for another."""
        self._routes.forget(episode)

    async def count_receivers(self) -> int:
        """How many receivers come to the channel: those of the engines that are up. Others wait for the next."""
        await self._until(lambda: any(seat.up for seat in self._seats))
        self._receivers = [seat for seat in self._seats if seat.up]
        return sum([await seat.engine.count_receivers() for seat in self._receivers])

    @property
    def receivers_changed(self) -> bool:
        """Whether an engine has come, gone or been replaced since weights were sent."""
        return self._connected != [seat.engine for seat in self._receivers]

    @property
    def receiver_nodes(self) -> tuple[int, ...]:
        """Those of the engines that `expect_weights` has counted."""
        return tuple(node for seat in self._receivers for node in seat.engine.receiver_nodes)

    async def receive_weights(self, rendezvous: Rendezvous, policy_version: int, *, first: int = 0) -> None:
        """Take new weights on the engines that `expect_weights` counted; their receivers are numbered in order."""
        self._version, self._loads_weights = policy_version, False
        try:
            async with asyncio.TaskGroup() as transfers:
                for seat in self._receivers:
                    engine, number = seat.engine, first
                    first += await engine.count_receivers()
                    transfers.create_task(engine.receive_weights(rendezvous, policy_version, first=number))
            self._connected = [seat.engine for seat in self._receivers]
        except ExceptionGroup as errors:
            raise first_error(errors) from errors
        finally:
            self._changed()

    async def sleep(self) -> None:
        """Lend all devices; waits for engines that are being started."""
        if self._lends_devices:
            await self._until(lambda: all(seat.up for seat in self._seats))
            self._asleep = True
        await asyncio.gather(*(seat.engine.sleep() for seat in self._seats if seat.up))

    async def wake(self, part: EngineMemoryPart) -> None:
        """Take the devices back."""
        await asyncio.gather(*(seat.engine.wake(part) for seat in self._seats if seat.up))
        self._asleep = part == "weights"

    def check(self) -> None:
        """Raise if the engines are given up."""
        if self._failure is not None:
            if isinstance(self._failure, EngineError):
                raise type(self._failure)(str(self._failure)) from self._failure
            raise self._failure  # a defect

    async def close(self) -> None:
        """End all engines."""
        self._fail(EngineError("the engine was closed"))
        keepers, self._keepers = self._keepers, []
        for keeper in keepers:
            keeper.cancel()
        await asyncio.gather(*keepers, return_exceptions=True)
        await asyncio.gather(*(seat.engine.close() for seat in self._seats))

    def _serving(self) -> list[int]:
        return [seat.number for seat in self._seats if self._serves(seat)]

    def _serves(self, seat: _ReplicaSlot) -> bool:
        return seat.up and self._is_current(seat)

    def _is_current(self, seat: _ReplicaSlot) -> bool:
        return seat.engine.policy_version == self._version != NO_POLICY

    async def _seat_of(self, episode: int, group: str) -> _ReplicaSlot:
        begun = self._routes.assigned_engine(episode)
        if begun is not None and self._failure is None and self._serves(self._seats[begun]):
            return self._seats[begun]  # of thousands of engines no other is asked
        await self._until(lambda: any(map(self._serves, self._seats)))
        return self._seats[self._routes.route(episode, group, self._serving())]

    async def _until(self, condition: Callable[[], bool]) -> None:
        """Wait; raises when the engines are given up."""
        while True:
            self.check()
            if condition():
                return
            await self._change.wait()

    def _changed(self) -> None:
        self._change.set()
        self._change = asyncio.Event()

    def _fail(self, error: Exception) -> None:
        self._failure = self._failure or error
        self._changed()

    async def _keep(self, seat: _ReplicaSlot) -> None:
        """Replace the engine as often as it dies and may be started again."""
        try:
            while True:
                try:
                    await seat.engine.watch()
                except EngineDiedError as death:
                    seat.up = False
                    await self._replace(seat, death)
        except Exception as error:
            self._fail(error)

    async def _replace(self, seat: _ReplicaSlot, death: EngineError) -> None:
        await seat.engine.close()
        while not seat.up:
            if self._asleep:
                self._give_up(death, "while the learner had its devices")
            if seat.restarts == self._restarts:
                self._give_up(death, f"after {seat.restarts} restarts (engine.max_restarts)")
            seat.restarts += 1
            _logger.warning(
                "engine %d: %s: it is started again (%d of %d)",
                seat.number,
                first_line(death),
                seat.restarts,
                self._restarts,
            )
            seat.engine = self._make(seat.number, self._loads_weights)
            try:
                await seat.engine.start()
                seat.up = True
            except EngineError as error:
                death = error
        self._changed()

    def _give_up(self, death: EngineError, why: str) -> NoReturn:
        first, _, rest = str(death).partition("\n")
        raise EngineError(f"{first} ({why})\n{rest}") from death
