"""The signal that graded groups offer to learn from: how their rewards differ, and what the differences follow.

An estimator that compares responses with their group learns from groups whose rewards differ; PPO and REINFORCE++ also
from those of equal rewards, if the groups differ. Whether a policy learns to solve problems depends on what the
differences follow: the answers, or something else.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Self, TypeVar

import numpy as np
import numpy.typing as npt

from torl.base.types import FinishReason, RewardComparison, ScoredGroup, ScoredTrajectory
from torl.run.records import metric_names as names
from torl.run.records.thresholds import FEW_MIXED, LONGER_RESPONSES, TRUNCATED, UNRELATED

Item = TypeVar("Item")

_LOW_PASS_RATIO = 0.5
_IDENTICAL = 0.9  # correlation


@dataclass(frozen=True, slots=True)
class LearningSignal:
    """Measures of graded groups.

    Attributes:
        groups: Number of groups of at least two responses.
        mixed: Number of groups with at least two different rewards.
        differ: Whether two rewards of the batch differ.
        differing: Number of groups in which some answers are correct and others are not.
        responses: Number of responses.
        samples: Mean number of responses per group.
        accuracy: Fraction of correct responses.
        code_ratio: Fraction of responses with code.
        pass_ratio: Fraction of runs that succeeded. None if nothing ran.
        truncated: Fraction of responses cut at the length limit.
        answer_correlation: Correlation of reward and correctness within groups. None if one of them never differs.
        code_correlation: Correlation of reward and use of code within groups. None if one of them never differs.
        frequent_error: Most frequent exception or status of failed runs. None without failures.
        comparison: Rewards that must differ for the estimator to learn.
    """

    groups: int
    mixed: int
    differ: bool
    differing: int
    responses: int
    samples: float
    accuracy: float
    code_ratio: float
    pass_ratio: float | None
    truncated: float
    answer_correlation: float | None
    code_correlation: float | None
    frequent_error: str | None
    comparison: RewardComparison

    @classmethod
    def measure(cls, groups: Sequence[ScoredGroup], comparison: RewardComparison = "group") -> Self:
        """Measure groups.

        Args:
            groups: Groups of a step or of a trial.
            comparison: Rewards that must differ for the estimator to learn (`TrainConfig.reward_comparison`).

        Raises:
            ValueError: The groups contain no response.
        """
        members = [member for group in groups for member in group.members]
        if not members:
            raise ValueError("no response to measure")
        compared = [group for group in groups if len(group.members) > 1]
        responses = [group.members for group in compared]
        runs = [call.outcome for member in members for call in member.trajectory.tool_calls if call.ran]
        failures = Counter(run.error or run.status.value for run in runs if not run.ok)
        return cls(
            groups=len(compared),
            mixed=sum(not group.has_zero_variance for group in compared),
            differ=len(set(map(_reward, members))) > 1,
            differing=sum(0 < group.accuracy < 1 for group in compared),
            responses=len(members),
            samples=len(members) / len(groups),
            accuracy=sum(map(_is_correct, members)) / len(members),
            code_ratio=sum(map(_has_code, members)) / len(members),
            pass_ratio=sum(run.ok for run in runs) / len(runs) if runs else None,
            truncated=sum(member.trajectory.finish_reason is FinishReason.LENGTH for member in members) / len(members),
            answer_correlation=correlation_within(responses, _reward, _is_correct),
            code_correlation=correlation_within(responses, _reward, _has_code),
            frequent_error=failures.most_common(1)[0][0] if failures else None,
            comparison=comparison,
        )

    @property
    def is_empty(self) -> bool:
        """Whether the rewards that the estimator compares are equal, so that nothing can be learned."""
        return {"group": self.mixed == 0, "batch": not self.differ, "none": False}[self.comparison]

    def lines(self) -> list[str]:
        """Return the measures as a line, and a line for each finding: nothing to learn from, a doubtful reward, ..."""
        measures = {
            names.ACCURACY: self.accuracy,
            names.CODE_RATIO: self.code_ratio,
            names.PASS_RATIO: self.pass_ratio,
            names.TRUNCATED: self.truncated,
        }
        shown = ", ".join(f"{metric.short} {metric.show(value)}" for metric, value in measures.items())
        return [f"{shown}; {self.mixed} of {self.groups} groups have different rewards", *self.findings()]

    def findings(self) -> list[str]:
        """Return a line for each obstacle to learning, with what to change."""
        found: list[str] = []
        if self.is_empty:
            which = "no group has two different rewards" if self.comparison == "group" else "all rewards are equal"
            found.append(f"nothing to learn from: {which}; {self._reason()}")
        elif self.comparison == "group" and self.mixed < FEW_MIXED.value * self.groups:
            found.append(
                f"little to learn from: {self.mixed} of {self.groups} groups have two different rewards; "
                "use problems that are solved sometimes, or more samples per prompt"
            )
        if self.mixed and (doubt := self._doubt()):
            found.append(doubt)
        if self.truncated > TRUNCATED.value:
            found.append(
                f"{self.truncated:.0%} of the responses are cut at the length limit: {LONGER_RESPONSES}, or check the "
                "template and its end token"
            )
        if self.pass_ratio is not None and self.pass_ratio < _LOW_PASS_RATIO:
            found.append(f"{1 - self.pass_ratio:.0%} of the runs fail, most often with {self.frequent_error}")
        return found

    def _reason(self) -> str:
        """Return why no rewards differ, and what to change."""
        if self.comparison == "batch" and 0 < self.accuracy < 1:
            return "but only some answers are correct: check the reward"
        if self.comparison == "group" and self.groups == 0:
            return "a group has one response (rollout.samples_per_prompt)"
        if self.differing:
            return f"but in {self.differing} of them only some answers are correct: check the reward"
        if self.accuracy == 1:
            return "every answer is correct: use harder problems"
        if self.accuracy > 0:
            return "each problem is solved always or never: use more samples per prompt, or other problems"
        habit = ", and no response has code" if self.code_ratio == 0 else ""
        change = "use easier problems, a warm start (torl finetune), or more samples per prompt"
        return f"no answer is correct{habit}: {change}"

    def _doubt(self) -> str | None:
        """Return why differences in reward may teach something other than solving problems."""
        pays_for_code = self.code_correlation is not None and self.code_correlation > _IDENTICAL
        what = "it pays for code alone" if pays_for_code else "it pays for something else"
        if self.answer_correlation is None:
            which = "no answer is correct" if self.accuracy == 0 else "the answers of a group are all equally correct"
            return f"rewards differ although {which}: {what}"
        if self.answer_correlation < UNRELATED.value:
            return (
                f"the reward does not follow the answers (correlation {self.answer_correlation:+.2f} within groups): "
                f"{what}"
            )
        return None


def _reward(member: ScoredTrajectory) -> float:
    return member.total


def _is_correct(member: ScoredTrajectory) -> bool:
    return member.grade.correct


def _has_code(member: ScoredTrajectory) -> bool:
    return member.trajectory.has_code


def deviations_within(groups: Iterable[Sequence[Item]], value: Callable[[Item], float]) -> npt.NDArray[np.float64]:
    """Return the deviations of a value from the mean of its group (N,), for the members of all groups in order."""
    values = (np.array([value(member) for member in group], np.float64) for group in groups)
    return np.concatenate([np.empty(0), *(each - each.mean() for each in values)])


def correlation_within(
    groups: Sequence[Sequence[Item]], one: Callable[[Item], float], other: Callable[[Item], float]
) -> float | None:
    """Return the correlation of two values' deviations from their group's mean; None if one of them never differs."""
    x, y = deviations_within(groups, one), deviations_within(groups, other)
    scale = float(np.sqrt((x @ x) * (y @ y)))
    return float(x @ y) / scale if scale > 1e-9 else None
