"""Who holds the devices' memory, and the order in which it is handed over.

Learner and engine on the same GPUs take turns: each has room only when the other has gone. The weights go over while
both hold theirs and nothing else. From sampling to training and back:

    engine awake,   learner offloaded    episodes are sampled
    engine asleep,  learner offloaded    the weights of the engine are dropped: new ones come before the next token
    engine asleep,  learner resident     update, export
    engine asleep,  learner parameters   the optimizer's state has gone first
    engine weights, learner parameters   the new weights go over
    engine weights, learner offloaded
    engine awake,   learner offloaded    then the cache has room

Where the two have devices of their own, or stay on them together, the moves that are not needed are left out, and
everything else takes the same way.
"""

import asyncio
from enum import Enum
from typing import NoReturn

from torl.engine import Engine
from torl.engine.protocol import WATCH_SECONDS
from torl.learner.learner import Learner
from torl.weights.rendezvous import Receivers


class LearnerMemory(Enum):
    """What the learner holds on its devices."""

    OFFLOADED = "offloaded"
    PARAMETERS = "parameters"
    """The parameters, without the optimizer's state."""
    RESIDENT = "resident"


class EngineMemory(Enum):
    """What the engine holds on its devices."""

    ASLEEP = "asleep"
    WEIGHTS = "weights"
    """Room for the weights, without the cache."""
    AWAKE = "awake"


class InvalidTransitionError(RuntimeError):
    """A defect of the caller: something was asked for in a state that has no room for it, or nothing to give."""


_LEARNER_NEEDS = {
    "prepare": {LearnerMemory.RESIDENT},
    "update": {LearnerMemory.RESIDENT},
    "export": {LearnerMemory.RESIDENT},
    "send_weights": {LearnerMemory.RESIDENT, LearnerMemory.PARAMETERS},
}


class Residency:
    """The state of both sides, and every move between states. At first the engine is awake."""

    def __init__(
        self,
        engine: Engine,
        learner: Learner,
        *,
        colocated: bool,
        engine_sleeps: bool,
        offloads_learner: bool,
        checksum: bool,
        policy_version: int,
    ) -> None:
        """As they are when both have been started.

        Args:
            engine: awake.
            learner: offloaded if `moves`, resident otherwise.
            colocated: whether both have the same devices.
            engine_sleeps: whether the engine sleeps while the learner works.
            offloads_learner: whether the learner is offloaded while the engine is awake.
            checksum: whether both sides compare checksums of the weights that go over.
            policy_version: of the learner's weights.
        """
        self._engine = engine
        self._learner = learner
        self._colocated = colocated
        self._sleeps = engine_sleeps
        self._moves = offloads_learner
        self._checksum = checksum
        self._policy_version = policy_version
        self.handover_lock = asyncio.Lock()
        """Held from the moment that the learner is given the devices until it has published its weights."""
        self.engine_memory = EngineMemory.AWAKE
        self.learner_memory = LearnerMemory.OFFLOADED if offloads_learner else LearnerMemory.RESIDENT

    def require_learner(self, command: str) -> Learner:
        """The learner, for one of its commands. A checkpoint is copied from wherever its state is, and needs no asking.

        Raises:
            InvalidTransitionError: the command needs more of the learner on its devices than is there.
        """
        if self.learner_memory not in _LEARNER_NEEDS[command]:
            needed = " or ".join(sorted(state.value for state in _LEARNER_NEEDS[command]))
            raise InvalidTransitionError(
                f"{command} needs a learner that is {needed}, and it is {self.learner_memory.value}"
            )
        return self._learner

    async def give_to_learner(self) -> None:
        """The engine falls asleep, then the learner has the devices. Nothing may be sampled until `publish`."""
        if self._sleeps and self.engine_memory is EngineMemory.AWAKE:
            await self._engine.sleep()
            self.engine_memory = EngineMemory.ASLEEP
        if self.learner_memory is not LearnerMemory.RESIDENT:
            await self._learner.onload()
            self.learner_memory = LearnerMemory.RESIDENT

    async def publish(self, policy_version: int) -> None:
        """The learner's weights go to the engine, as `policy_version`; then the engine has the devices.

        Raises:
            InvalidTransitionError: the learner was not given the devices first.
        """
        learner = self.require_learner("update")
        if self._sleeps and self.engine_memory is not EngineMemory.ASLEEP:
            raise InvalidTransitionError(f"the engine is {self.engine_memory.value}, and has no room for other weights")
        if self._moves:
            await learner.offload("optimizer")
            self.learner_memory = LearnerMemory.PARAMETERS
        if self._sleeps:
            await self._engine.wake("weights")
            self.engine_memory = EngineMemory.WEIGHTS
        await self._transfer(policy_version)
        if self._moves:
            await learner.offload("parameters")
            self.learner_memory = LearnerMemory.OFFLOADED
        if self._sleeps:
            await self._engine.wake("cache")
            self.engine_memory = EngineMemory.AWAKE
        self._policy_version = policy_version

    async def resend_weights(self) -> NoReturn:
        """Send the weights again whenever an engine was started again that lacks them.

        At once, if the learner has them and its devices; where the engines have them, others sample on, and the next
        publication comes soon enough. If no engine samples any more they are free, and the learner is given them.
        """
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            async with self.handover_lock:
                if self._engine.needs_weights and not ((self._sleeps or self._moves) and self._engine.is_serving):
                    await self.give_to_learner()
                    await self.publish(self._policy_version)

    async def _transfer(self, policy_version: int) -> None:
        learner = self.require_learner("send_weights")
        receivers = Receivers(
            await self._engine.count_receivers(),
            nodes=tuple(self._engine.receiver_nodes),
            changed=self._engine.receivers_changed,
            share_gpus=self._colocated,
        )
        rendezvous = await learner.open_channel(receivers)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(learner.send_weights(rendezvous, checksum=self._checksum))
            tasks.create_task(self._engine.receive_weights(rendezvous, policy_version))
