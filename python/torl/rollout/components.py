"""The components of a configuration, made before anything starts, so that mistakes are reported at once."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from torl.agents import Agent
from torl.config import ModelRunConfig
from torl.environments import BoundedEnvironment, make_environment
from torl.rewards import Reward
from torl.tools import BaseTool, make_tool


@dataclass(frozen=True, slots=True)
class Components:
    """Tools, environment, agent and reward of a run. They are not started."""

    tools: Mapping[str, BaseTool]
    """Tools by the keys of their sections."""
    environment: BoundedEnvironment | None
    agent: Agent | None
    reward: Reward

    @classmethod
    def from_config(cls, config: ModelRunConfig) -> Self:
        """Make the components of a configuration.

        Raises:
            TorlError: A component cannot be made.
        """
        rollout = config.rollout
        return cls(
            tools={name: make_tool(name, choice) for name, choice in rollout.tools.items()},
            environment=None if rollout.environment is None else make_environment(rollout.environment),
            agent=None if rollout.agent is None else rollout.agent.make(),
            reward=config.reward.make(),
        )
