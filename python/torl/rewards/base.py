"""The base class of rewards."""

from abc import abstractmethod
from collections.abc import Sequence

from torl.component import Component
from torl.types import Grade, Group


class Reward(Component):
    '''A function that grades trajectories. Example, with reward parts and turn rewards:

        import torl
        from torl import Grade, Group, Trajectory, StopReason
        from torl.text.answers import find_answer

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

    @abstractmethod
    async def grade(self, group: Group) -> Sequence[Grade]:
        """Return one grade for each trajectory of the group, in order.

        Raises:
            RewardError: The reward has failed. The run stops.
        """
