"""The reward of an environment."""

from collections.abc import Mapping

from torl.base.errors import RewardError
from torl.base.options import Section
from torl.base.types import Grade, Group, Trajectory
from torl.components.rewards.reward import Reward


class EnvironmentRewardOptions(Section):
    """Options of the reward "environment"."""

    weights: Mapping[str, float] = {}
    """Factor of each part, by the environment's names; 1 if unset, 0 to log it only."""
    correct_threshold: float = 1.0
    """Reward from which a response counts as correct."""


class EnvironmentReward(Reward):
    """The sum of the environment's rewards, each a part."""

    def __init__(self, options: EnvironmentRewardOptions | None = None) -> None:
        self.options = options or EnvironmentRewardOptions()

    async def grade(self, group: Group) -> list[Grade]:
        """Return one grade for each trajectory.

        Raises:
            RewardError: The run has no environment, or a weight names a part that the environment does not return.
        """
        return [self._grade(trajectory) for trajectory in group.trajectories]

    def _grade(self, trajectory: Trajectory) -> Grade:
        rewards, weights = trajectory.environment_rewards, self.options.weights
        if not rewards:
            raise RewardError(
                "the reward 'environment' found nothing that an environment gave: choose rollout.environment, and one "
                "that gives rewards; one that gives some only sometimes names them all in `parts`"
            )
        if unknown := weights.keys() - rewards.keys():
            raise RewardError(
                f"reward.weights has {min(unknown)!r}, and the environment gave {', '.join(sorted(rewards))}; one that "
                "gives a part only sometimes names all of them in `parts`, so that a missing one counts as 0"
            )
        parts = {name: weights.get(name, 1.0) * value for name, value in rewards.items()}
        reward = sum(parts.values())
        return Grade(reward, reward >= self.options.correct_threshold, None, parts=parts)
