"""Device memory of engine and learner, and the order of its handover.

Engine and learner on the same GPUs take turns: there is memory for only one of them. The weights are transferred while
both hold their weights and nothing else. From sampling to training and back:

    engine awake,   learner offloaded    episodes are sampled
    engine asleep,  learner offloaded    the engine's weights are dropped: new ones follow before the next token
    engine asleep,  learner resident     update, export
    engine asleep,  learner parameters   the optimizer's state is offloaded first
    engine weights, learner parameters   the new weights are transferred
    engine weights, learner offloaded
    engine awake,   learner offloaded    now there is memory for the cache

If both have separate devices, or fit on them together, the unnecessary moves are left out.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from enum import Enum
from typing import NoReturn

from torl.components.engine import Engine
from torl.components.engine.protocol import WATCH_SECONDS
from torl.learner.learner import Learner


class LearnerMemory(Enum):
    """The state of the learner's devices."""

    OFFLOADED = "offloaded"
    PARAMETERS = "parameters"
    """The parameters, without the optimizer's state."""
    RESIDENT = "resident"


class EngineMemory(Enum):
    """The state of the engine's devices."""

    ASLEEP = "asleep"
    WEIGHTS = "weights"
    """Memory for the weights, without the cache."""
    AWAKE = "awake"


class InvalidTransitionError(RuntimeError):
    """A defect of the caller: an operation in a state that does not allow it."""


@dataclass(frozen=True, slots=True)
class DeviceSharing:
    """The use of devices by engine and learner."""

    colocated: bool = False
    """Whether both have the same devices."""
    engine_sleeps: bool = False
    """Whether the engine sleeps while the learner works."""
    learner_offloads: bool = False
    """Whether the learner is offloaded while the engine is awake."""


class Residency:
    """The memory state of engine and learner, and every transition of it."""

    def __init__(
        self, engine: Engine, learner: Learner, sharing: DeviceSharing, *, policy_version: int, checksum: bool = False
    ) -> None:
        """Start with the engine awake.

        Args:
            engine: The engine.
            learner: The learner, offloaded if `sharing.learner_offloads` and resident otherwise.
            sharing: Use of devices.
            policy_version: Version of the learner's weights.
            checksum: Whether both sides compare checksums of transferred weights.
        """
        self._engine = engine
        self._learner = learner
        self._sharing = sharing
        self._checksum = checksum
        self._policy_version = policy_version
        self._handover = asyncio.Lock()
        self.engine_memory = EngineMemory.AWAKE
        self.learner_memory = LearnerMemory.OFFLOADED if sharing.learner_offloads else LearnerMemory.RESIDENT

    @asynccontextmanager
    async def lend_learner(self) -> AsyncIterator["LearnerLoan"]:
        """Put the engine to sleep and give the devices to the learner, until `LearnerLoan.publish`.

        Without a publication, the learner keeps the devices after the block.
        """
        async with self._handover:
            await self._give_to_learner()
            yield LearnerLoan(self)

    async def resend_weights(self) -> NoReturn:
        """Send the weights again whenever a restarted engine needs them.

        If engine and learner do not take turns, send them immediately. Otherwise the other engines keep sampling, and
        the next publication includes the restarted one; if no engine is sampling, the learner takes the devices.
        """
        takes_turns = self._sharing.engine_sleeps or self._sharing.learner_offloads
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            async with self._handover:
                if self._engine.needs_weights and not (takes_turns and self._engine.is_serving):
                    await self._give_to_learner()
                    await self._publish(self._policy_version)

    async def _give_to_learner(self) -> None:
        if self._sharing.engine_sleeps and self.engine_memory is EngineMemory.AWAKE:
            await self._engine.sleep()
            self.engine_memory = EngineMemory.ASLEEP
        if self.learner_memory is not LearnerMemory.RESIDENT:
            await self._learner.onload()
            self.learner_memory = LearnerMemory.RESIDENT

    def _require_learner(self) -> Learner:
        if self.learner_memory is not LearnerMemory.RESIDENT:
            raise InvalidTransitionError(f"the learner must be resident, and is {self.learner_memory.value}")
        return self._learner

    async def _publish(self, policy_version: int) -> None:
        learner, sharing = self._require_learner(), self._sharing
        if sharing.engine_sleeps and self.engine_memory is not EngineMemory.ASLEEP:
            raise InvalidTransitionError(f"cannot publish weights while the engine is {self.engine_memory.value}")
        if sharing.learner_offloads:
            await learner.offload("optimizer")
            self.learner_memory = LearnerMemory.PARAMETERS
        elif sharing.engine_sleeps:
            await learner.offload("cache")
        if sharing.engine_sleeps:
            await self._engine.wake("weights")
            self.engine_memory = EngineMemory.WEIGHTS
        await self._transfer(policy_version)
        if sharing.learner_offloads:
            await learner.offload("parameters")
            self.learner_memory = LearnerMemory.OFFLOADED
        if sharing.engine_sleeps:
            await self._engine.wake("cache")
            self.engine_memory = EngineMemory.AWAKE
        self._policy_version = policy_version

    async def _transfer(self, policy_version: int) -> None:
        receivers = await self._engine.select_receivers()
        rendezvous = await self._learner.open_channel(replace(receivers, share_gpus=self._sharing.colocated))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._learner.send_weights(rendezvous, checksum=self._checksum))
            tasks.create_task(self._engine.receive_weights(rendezvous, policy_version))


class LearnerLoan:
    """The devices while the learner has them."""

    def __init__(self, residency: Residency) -> None:
        """Made by `Residency.lend_learner`."""
        self._residency = residency

    @property
    def learner(self) -> Learner:
        """The learner, until its weights are published. Checkpoints need no loan: they copy the state from anywhere.

        Raises:
            InvalidTransitionError: The learner is not resident.
        """
        return self._residency._require_learner()

    async def publish(self, policy_version: int) -> None:
        """Send the learner's weights to the engine as `policy_version`, and give the devices to the engine.

        Raises:
            InvalidTransitionError: The weights have been published already.
        """
        await self._residency._publish(policy_version)
