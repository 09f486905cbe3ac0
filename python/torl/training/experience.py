"""What a run learns from: its steps, played ahead of the learner as far as allowed.

With `max_staleness` 0 a step is played when the learner has finished the last one. With k, up to k further steps are
played meanwhile: their episodes take the places that the last ones of the step before leave free, and continue to
sample while new weights arrive. How far ahead a run is, is bounded from both sides: no step begins before the policy is
that of `step - max_staleness` or later, and the learner waits for its step to be whole.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from torl.config import TrainConfig
from torl.data.sampler import Sampler
from torl.report.console import Console
from torl.rewards import Reward
from torl.rollout.episode import EpisodePlayer
from torl.training.step import PlayedStep, StepPlayer

__all__ = ["Experience", "PlayedStep"]


class Experience:
    """The steps of a run, in order. Tell it of each new policy with `advance`."""

    def __init__(
        self,
        config: TrainConfig,
        sampler: Sampler,
        player: EpisodePlayer,
        reward: Reward,
        console: Console,
    ) -> None:
        """Play nothing yet."""
        self._steps = config.run.steps
        self._max_staleness = config.rollout.max_staleness
        self._sampler = sampler
        self._player = StepPlayer(config, sampler, player, reward, console)
        self._next = 0  # the step that begins next
        self._playing: dict[int, asyncio.Task[PlayedStep]] = {}
        self._positions: dict[int, Mapping[str, Any]] = {}  # where the data stood when a step began

    async def steps(self, first: int) -> AsyncGenerator[PlayedStep, None]:
        """The steps from `first` to the last, each when it is whole. Close it (`aclosing`) to end what is in flight.

        Raises:
            TorlError: the host is broken. No later step is given out.
        """
        self._next = first
        self.advance(first)
        try:
            for step in range(first, self._steps):
                played = await self._playing[step]
                del self._playing[step], self._positions[step]
                yield played
        finally:
            for task in self._playing.values():
                task.cancel()
            await asyncio.gather(*self._playing.values(), return_exceptions=True)

    def advance(self, policy_version: int) -> None:
        """The engine samples with this version from now on: begin the steps that it allows."""
        while self._next < self._steps and self._next - policy_version <= self._max_staleness:
            self._playing[self._next] = asyncio.create_task(self._play(self._next))
            self._next += 1

    def position(self, step: int) -> Mapping[str, Any]:
        """Where in the data a run continues that resumes at `step`: what was played ahead of it is played again."""
        return self._positions.get(step) or self._sampler.state_dict()

    async def _play(self, step: int) -> PlayedStep:
        self._positions[step] = self._sampler.state_dict()
        return await self._player.play(step)
