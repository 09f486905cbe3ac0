"""What a run needs of a reward."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from torl.runtime.cluster import Cluster
from torl.types import Grade, Group


class Reward(Protocol):
    '''Says what trajectories are worth. One object serves a whole run. A whole one, with parts and pay by turn:

        import torl
        from torl import Grade, Group, Trajectory, StopReason
        from torl.text.answers import find_answer

        class ShortAndRight(torl.Reward):
            """Right answers, and a little for every turn that calls a tool."""

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

    The parameters of its `__init__` are its options. Groups are graded while others still play, many at once.
    '''

    async def grade(self, group: Group) -> Sequence[Grade]:
        """The grades of a group's trajectories, in their order.

        Raises:
            RewardError: the reward is broken; the run stops.
        """
        ...

    def use_cluster(self, cluster: Cluster) -> None:
        """Told before `start` where the run is. A reward that does not use the nodes stays with the controller."""
        return

    async def start(self) -> None:
        """Start what the reward needs, once, before the first group; raises a `TorlError` if it does not work."""
        return

    async def close(self) -> None:
        """End what `start` started; also after a `start` that failed."""
        return

    def metrics(self) -> Mapping[str, float]:
        """Counts since the start, by name, for the records of a run."""
        return {}
