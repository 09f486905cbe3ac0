"""Groups of trajectories with their grades and rewards."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from torl.base.types.problems import Prompt
from torl.base.types.trajectories import Trajectory

RewardComparison = Literal["group", "batch", "none"]
"""The rewards that must differ for an estimator to learn: those of a group, of the batch, or none."""


@dataclass(frozen=True, slots=True)
class Group:
    """The trajectories of one prompt, which are compared with each other.

    Attributes:
        prompt: Common prompt.
        trajectories: One trajectory for each episode, in the order of their samples. Branches share its grade.
        max_response_tokens: Token limit of the responses.
        grades: Sums of the rubric's parts before this one, one for each trajectory. Empty outside a rubric.
    """

    prompt: Prompt
    trajectories: tuple[Trajectory, ...]
    max_response_tokens: int
    grades: tuple["Grade", ...] = ()


@dataclass(frozen=True, slots=True)
class Grade:
    """The grade of one trajectory.

    Attributes:
        reward: Reward at the last sampled token.
        correct: Whether the answer is correct.
        answer: Answer that was compared with the reference, or None without an answer.
        failure: "timeout" or "error" if the grader failed, in which case the answer counts as wrong.
        parts: Parts of the reward by name, whose sum is `reward`. Each part is logged.
        turn_rewards: Additional rewards at the last token of each turn: one for every turn, or none.
        detail: Reason for the grade in a few words, such as the first test that a program failed.
        valid_format: Whether the response has the format that the reward requires, if it requires one.
    """

    reward: float
    correct: bool = False
    answer: str | None = None
    failure: str | None = None
    parts: Mapping[str, float] = field(default_factory=dict, hash=False)
    turn_rewards: tuple[float, ...] = ()
    valid_format: bool = True
    detail: str = ""

    @property
    def credited(self) -> bool:
        """Whether the answer is rewarded as correct: correct, and in a valid format."""
        return self.correct and self.valid_format

    @property
    def total(self) -> float:
        """Sum of the reward and all turn rewards."""
        return self.reward + sum(self.turn_rewards)


@dataclass(frozen=True, slots=True)
class ScoredTrajectory:
    """A trajectory with its grade and the reward used for training.

    Attributes:
        trajectory: Trajectory.
        grade: Its grade.
        reward: Reward at the last sampled token, as used for training.
    """

    trajectory: Trajectory
    grade: Grade
    reward: float

    @property
    def total(self) -> float:
        """Sum of the reward used for training and all turn rewards."""
        return self.reward + sum(self.grade.turn_rewards)

    @property
    def episode_trajectories(self) -> tuple["ScoredTrajectory", ...]:
        """All trajectories of the episode with its reward. Turn rewards belong to the last trajectory."""
        grade = replace(self.grade, turn_rewards=())
        return (*(ScoredTrajectory(branch, grade, self.reward) for branch in self.trajectory.branches), self)


@dataclass(frozen=True, slots=True)
class ScoredGroup:
    """The scored trajectories of one prompt.

    Attributes:
        prompt: Common prompt.
        members: Scored trajectories.
    """

    prompt: Prompt
    members: tuple[ScoredTrajectory, ...]

    @property
    def id(self) -> str:
        """Name of the group: "step/problem"."""
        return self.members[0].trajectory.group_id

    @property
    def accuracy(self) -> float:
        """Fraction of the members with a correct answer, in any format."""
        return sum(member.grade.correct for member in self.members) / len(self.members)

    @property
    def credited_fraction(self) -> float:
        """Fraction of the members whose answer is rewarded as correct."""
        return sum(member.grade.credited for member in self.members) / len(self.members)

    @property
    def has_zero_variance(self) -> bool:
        """Whether all members have the same total reward. False for a group of one.

        Estimators that compare totals within the group learn nothing from it, and DAPO's dynamic sampling replaces it.
        Others declare that they do (`uniform_groups` and `across_groups` of `requires`).
        """
        return len(self.members) > 1 and len({member.total for member in self.members}) == 1
