"""Grading of groups, and of recorded trajectories with the metadata of their problems, which only the source has."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from torl.base.errors import TorlError
from torl.base.runtime.processes.hangs import PendingCalls
from torl.base.types import Group, Problem, ScoredGroup, ScoredTrajectory, Trajectory
from torl.components.rewards import Reward
from torl.run.config import ProblemChoice


async def score_group(reward: Reward, group: Group, calls: PendingCalls | None = None) -> ScoredGroup:
    """Grade a group.

    Args:
        reward: Reward that grades it.
        group: Group to grade.
        calls: Register of pending calls, for the detection of hangs.

    Raises:
        RewardError: The grader failed.
        ComponentError: The reward raised an exception, or returned invalid grades.
    """
    with (calls or PendingCalls()).open("the reward"):
        grades = await reward.grade(group)
    scored = zip(group.trajectories, grades, strict=True)
    return ScoredGroup(
        group.prompt, tuple(ScoredTrajectory(trajectory, grade, grade.reward) for trajectory, grade in scored)
    )


async def score_groups(
    reward: Reward, groups: Sequence[Group], calls: PendingCalls | None = None
) -> tuple[ScoredGroup, ...]:
    """Grade groups concurrently, and return them in order.

    Raises:
        RewardError: The grader failed.
        ComponentError: The reward raised an exception, or returned invalid grades.
    """
    return tuple(await asyncio.gather(*(score_group(reward, group, calls) for group in groups)))


class ProblemsById:
    """The problems of a source by their ids, read as far as they are asked for."""

    def __init__(self, choice: ProblemChoice, limit: int | None = None) -> None:
        """Prepare the source.

        Args:
            choice: Problem source.
            limit: Number of problems that are used. None for all.
        """
        self._problems: dict[str, Problem] = {}
        self._unread: Iterator[Problem] = iter(())
        self.reason = ""
        """The reason why the problems are unknown; empty if the source can be read."""
        try:
            self._unread = iter(islice(choice.bind()(), limit))
        except TorlError as error:
            self.drop(f"cannot be read: {error}")

    @property
    def available(self) -> bool:
        """Whether the problems are known."""
        return not self.reason

    def drop(self, reason: str) -> None:
        """Know no problem from now on, for this reason."""
        self.reason, self._unread = reason, iter(())
        self._problems.clear()

    def problem(self, problem_id: str) -> Problem | None:
        """Return a problem of the source, or None."""
        self._read_until(problem_id)
        return self._problems.get(problem_id)

    def find(self, recorded: Iterable[Problem]) -> dict[str, Problem]:
        """Return the problems of the source that have the ids, questions and answers of recorded ones, by id."""
        found = ((each, self.problem(each.id)) for each in dict.fromkeys(recorded))
        return {
            one.id: other
            for one, other in found
            if other is not None and (other.question, other.answer) == (one.question, one.answer)
        }

    def _read_until(self, problem_id: str | None) -> None:
        try:
            while problem_id not in self._problems and (problem := next(self._unread, None)) is not None:
                self._problems[problem.id] = problem
        except TorlError as error:
            self.drop(f"cannot be read: {error}")


async def grade_again(reward: Reward, group: Group, problems: Mapping[str, Problem]) -> ScoredGroup | None:
    """Grade a recorded group.

    Args:
        reward: Reward, started.
        group: Recorded group.
        problems: Problems with metadata by id (`ProblemsById.find`).

    Returns:
        The graded group. None if the reward reads the metadata of a problem that is not in `problems`.

    Raises:
        TorlError: The reward failed.
    """
    unknown = _UnknownMetadata()
    known = problems.get(group.prompt.problem.id)
    metadata = unknown if known is None else known.metadata
    # Each with its own question and answer: one that differs from the source is a mistake of its record.
    trajectories = tuple(
        with_problem(each, replace(each.prompt.problem, metadata=metadata)) for each in group.trajectories
    )
    try:
        scored = await score_group(reward, Group(trajectories[0].prompt, trajectories, group.max_response_tokens))
    except TorlError:
        if unknown.was_read:
            return None
        raise
    return None if unknown.was_read else scored


def with_problem(trajectory: Trajectory, problem: Problem) -> Trajectory:
    """Return a trajectory with the problem as its source has it, but its own prompt tokens.

    An agent or an environment may have set these.
    """
    branches = tuple(with_problem(branch, problem) for branch in trajectory.branches)
    return replace(trajectory, prompt=replace(trajectory.prompt, problem=problem), branches=branches)


class _UnknownMetadata(Mapping[str, Any]):
    """The metadata of a problem that its source lacks: empty, and remembers whether a reward has read it."""

    def __init__(self) -> None:
        self.was_read = False

    def __getitem__(self, name: str) -> Any:
        self.was_read = True
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        self.was_read = True
        return iter(())

    def __len__(self) -> int:
        self.was_read = True
        return 0
