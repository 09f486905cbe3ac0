"""What a configuration chose, made before anything is started: what cannot be found is said at once."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from torl.agents import Agent
from torl.config import ModelRunConfig
from torl.environments import BoundedEnvironment, make_environment
from torl.rewards import Reward, make_reward
from torl.tools import BaseTool, make_tool


@dataclass(frozen=True, slots=True)
class Components:
    """Parts of a run that others may have written. Nothing of them has been started."""

    tools: Mapping[str, BaseTool]
    """By the names of their sections."""
    environment: BoundedEnvironment | None
    agent: Agent | None
    reward: Reward

    @classmethod
    def from_config(cls, config: ModelRunConfig) -> Self:
        """Make them.

        Raises:
            TorlError: one cannot be made as the configuration says.
        """
        rollout = config.rollout
        return cls(
            tools={name: make_tool(name, choice) for name, choice in rollout.tools.items()},
            environment=None if rollout.environment is None else make_environment(rollout.environment),
            agent=None if rollout.agent is None else rollout.agent.make(),
            reward=make_reward(config.reward),
        )
