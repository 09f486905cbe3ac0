"""The base class of rewards, and the reward of an environment."""

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from itertools import chain

from torl.base.component import Component
from torl.base.errors import RewardError
from torl.base.guard import InvalidResultError, describe, guarded
from torl.base.options import Section
from torl.base.types import Grade, Group, Trajectory


def check_grades(grades: object, group: Group) -> None:
    """Raise `InvalidResultError` unless `grades` is a sequence with one valid grade for each trajectory."""
    if not isinstance(grades, Sequence) or isinstance(grades, str):
        raise InvalidResultError(f"expected a list with one Grade for each trajectory, got {describe(grades)}")
    if len(grades) != len(group.trajectories):
        raise InvalidResultError(
            f"expected {len(group.trajectories)} grades, one for each trajectory; got {len(grades)}"
        )
    for index, (trajectory, grade) in enumerate(zip(group.trajectories, grades, strict=True)):
        if not isinstance(grade, Grade):
            raise InvalidResultError(f"expected Grade for trajectory {index}, got {describe(grade)}")
        if not all(map(math.isfinite, chain([grade.reward], grade.turn_rewards, grade.parts.values()))):
            raise InvalidResultError(
                f"the rewards of trajectory {index} must be finite: reward = {grade.reward}, "
                f"parts = {dict(grade.parts)}, turn_rewards = {grade.turn_rewards}"
            )
        parts = math.fsum(grade.parts.values())
        if grade.parts and not math.isclose(parts, grade.reward, rel_tol=1e-6, abs_tol=1e-6):
            raise InvalidResultError(
                f"the parts of trajectory {index} add up to {parts:g}, but its reward is {grade.reward:g}"
            )
        if grade.turn_rewards and len(grade.turn_rewards) != len(trajectory.turns):
            raise InvalidResultError(
                f"expected {len(trajectory.turns)} turn rewards, one for each turn of trajectory {index}; "
                f"got {len(grade.turn_rewards)}"
            )


class Reward(Component, kind="reward"):
    '''A reward: it grades the trajectories of a group. Example, with reward parts and turn rewards:

        import torl
        from torl import Grade, Group, StopReason, Trajectory, find_answer

        class ShortAndRight(torl.Reward):
            """Rewards correct answers, short ones, and every turn that calls a tool."""

            def __init__(self, bonus: float = 0.1) -> None:
                self.bonus = bonus

            async def grade(self, group: Group) -> list[Grade]:
                shortest = min(len(trajectory) for trajectory in group.trajectories)
                return [self.one(trajectory, shortest) for trajectory in group.trajectories]

            def one(self, trajectory: Trajectory, shortest: int) -> Grade:
                answer = find_answer(trajectory.sampled_text)
                right = answer is not None and answer.text == trajectory.prompt.problem.answer
                parts = {"answer": float(right), "length": float(right and len(trajectory) == shortest)}
                turns = tuple(self.bonus * (turn.stop_reason is StopReason.CALL) for turn in trajectory.turns)
                return Grade(sum(parts.values()), right, answer and answer.text, parts=parts, turn_rewards=turns)

        [reward]
        name = "my_package.rewards:ShortAndRight"
        bonus = 0.2

    Groups are graded concurrently, while other groups are still being sampled. The parameters of `__init__` are the
    options.
    '''

    @guarded(check_grades)
    @abstractmethod
    async def grade(self, group: Group) -> Sequence[Grade]:
        """Return one grade for each trajectory of the group, in order.

        Raises:
            RewardError: The reward has failed. The run stops.
        """


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
