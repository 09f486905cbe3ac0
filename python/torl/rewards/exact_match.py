"""The outcome reward of search: what stands in the last <answer> tags equals a reference, letter by letter."""

from torl.options import Section
from torl.rewards.base import Reward
from torl.text.tagged_answers import is_same_answer, tagged_answer
from torl.types import Grade, Group, Trajectory


class ExactMatchOptions(Section):
    """Options of the reward "exact_match"."""

    correct: float = 1.0
    """Reward of an answer that is the reference's, but for case, punctuation, articles and space."""
    wrong: float = 0.0
    """Reward of any other, or of none."""


class ExactMatchReward(Reward):
    """Pays for the last <answer> of what was sampled (Search-R1, section 3.4); observations are not read.

    A reference of several lines is several answers, any of which is right.
    """

    def __init__(self, options: ExactMatchOptions | None = None) -> None:
        """Take the options of a configuration, or the defaults."""
        self.options = options or ExactMatchOptions()

    async def grade(self, group: Group) -> list[Grade]:
        """Every trajectory by itself."""
        return [self._grade(trajectory) for trajectory in group.trajectories]

    def _grade(self, trajectory: Trajectory) -> Grade:
        answer = tagged_answer(trajectory.answer_text)
        correct = answer is not None and is_same_answer(answer, trajectory.prompt.problem.answer)
        return Grade(self.options.correct if correct else self.options.wrong, correct, answer)
