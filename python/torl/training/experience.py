"""The training data of a run: steps played ahead of the learner, as far as the maximum staleness allows.

With `max_staleness` 0, a step starts once the learner has finished the previous one. With k, up to k more steps are
played at the same time: their episodes use the slots that the previous step's last episodes leave free, and continue to
sample while new weights arrive. Staleness is bounded from both sides: a step starts only when the policy has reached
version `step - max_staleness`, and the learner waits until its step is complete.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

from torl.base.types import Prompt
from torl.components.data.sampler import Sampler
from torl.components.rewards import Reward
from torl.rollout.episode import EpisodePlayer
from torl.run.config import TrainConfig
from torl.run.display.console import Console
from torl.training.step import PlayedStep, StepPlayer
from torl.training.step_problems import StepProblems


class Experience:
    """The steps of a run, in order. Call `advance` after every update of the policy.

    Args:
        config: Configuration of the run.
        sampler: Source of prompts.
        player: Player of episodes.
        reward: Reward that grades them.
        console: Console for progress and warnings.
        ahead: Prompts that steps ahead of the checkpoint had taken, which are played first.
    """

    def __init__(
        self,
        config: TrainConfig,
        sampler: Sampler,
        player: EpisodePlayer,
        reward: Reward,
        console: Console,
        ahead: Sequence[Prompt] = (),
    ) -> None:
        self._steps = config.run.steps
        self._max_staleness = config.rollout.max_staleness
        self._problems = StepProblems(sampler, ahead, self._max_staleness)
        self._player = StepPlayer(config, self._problems, player, reward, console)
        self._next = 0
        self._playing: dict[int, asyncio.Task[PlayedStep]] = {}

    @property
    def position(self) -> Mapping[str, Any]:
        """State of the problems for a run that resumes after the last step yielded. It plays steps ahead again."""
        return self._problems.position

    async def steps(self, first: int) -> AsyncGenerator[PlayedStep, None]:
        """Yield the steps from `first` to the last, each once it is complete. `aclosing` cancels steps in flight.

        Raises:
            TorlError: The host failed. No later step is yielded.
        """
        self._next = first
        self.advance(first)
        try:
            for step in range(first, self._steps):
                played = await self._playing[step]
                del self._playing[step]
                self._problems.end(step)
                yield played
        finally:
            for task in self._playing.values():
                task.cancel()
            await asyncio.gather(*self._playing.values(), return_exceptions=True)

    def advance(self, policy_version: int) -> None:
        """Start the steps that may be sampled from version `policy_version` on."""
        while self._next < self._steps and self._next - policy_version <= self._max_staleness:
            self._playing[self._next] = asyncio.create_task(self._player.play(self._next))
            self._next += 1
