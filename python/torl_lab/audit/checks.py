"""The results of an audit's checks, and the checks of policy versions and rewards."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Final

from torl.base.component import RunContext
from torl.base.errors import NotTrustedError, TorlError
from torl.base.options import Choice
from torl.base.types import Grade, Group, Problem
from torl.components.rewards import Reward, make_reward
from torl.rollout.grading import ProblemsById, grade_again
from torl.run.config import LearningConfig
from torl.run.records.rows import TrajectoryRecord

_TOLERANCE = 1e-6
_IMPOSSIBLE = (ArithmeticError, AssertionError, LookupError, RuntimeError, TypeError, ValueError)  # values of records
MAX_LOGPROB: Final = 2e-5
"""The largest log-probability that rounding in float32 makes of 0."""
COLUMNS = f"{'check':<12} {'verdict':<12} {'expected':>8} {'found':>8}  max difference"
"""The head of the table whose rows are checks."""


@dataclass(slots=True)
class Check:
    """The result of one check: numbers of comparisons and mismatches, differences and examples.

    A function with a check as its first argument counts in it what it compares.
    """

    shown: ClassVar[int] = 3
    """Number of mismatches that are kept as examples."""
    name: str
    compared: int = 0
    wrong: int = 0
    max_difference: float = 0.0
    mean_difference: float | None = None
    note: str = ""
    examples: list[str] = field(default_factory=list)
    """The first mismatches, as text."""

    def add(self, right: bool, example: str, difference: float = 0.0, tokens: Sequence[int] = ()) -> None:
        """Count a comparison. `tokens` are the places in the response at which it fails, if known."""
        self.compared += 1
        self.max_difference = max(self.max_difference, difference)
        if not right:
            self.wrong += 1
            if len(self.examples) < self.shown:
                self.examples.append(example)

    def add_mismatch(self, record: TrajectoryRecord, mismatch: str | None) -> None:
        """Count a trajectory and its mismatch, if any."""
        self.add(mismatch is None, f"{place_of(record)}: {mismatch}")

    def expect(self, place: str, expected: object, found: object) -> None:
        """Count a comparison of two values for equality."""
        self.add(expected == found, f"{place}: expected {expected}, found {found}")

    @contextmanager
    def reading(self, place: str) -> Iterator[None]:
        """Count records as a mismatch if the block cannot compare them because their values are impossible."""
        try:
            yield
        except NotTrustedError as error:
            self.add_note(str(error))
        except (*_IMPOSSIBLE, OSError, TorlError) as error:
            self.add(False, f"{place}: cannot be compared: {type(error).__name__}: {error}")

    def add_note(self, note: str) -> None:
        """Add a note, once."""
        if note not in self.note:
            self.note = f"{self.note}; {note}" if self.note else note

    def __str__(self) -> str:
        """Return a row of the table with the numbers of comparisons and matches, and the first mismatches below it."""
        verdict = "not checked" if not self.compared else "ok" if not self.wrong else "WRONG"
        line = f"{self.name:<12} {verdict:<12} {self.compared:>8} {self.compared - self.wrong:>8}"
        if self.max_difference:
            mean = "" if self.mean_difference is None else f", mean {self.mean_difference:.2g}"
            line += f"  {self.max_difference:.2g}{mean}"
        shown = [f"    {text}" for text in self.examples]
        if self.wrong > len(self.examples):
            shown.append(f"    and {self.wrong - len(self.examples)} more")
        return "\n".join([line + (f"  ({self.note})" if self.note else ""), *shown])


@dataclass(slots=True)
class OwnCheck(Check):
    """A check that counts only the comparisons of one trajectory.

    Attributes:
        place: Position of the trajectory, with which its comparisons begin (`place_of`).
        tokens: Places in the response at which comparisons fail.
    """

    place: str = ""
    tokens: list[int] = field(default_factory=list)

    def add(self, right: bool, example: str, difference: float = 0.0, tokens: Sequence[int] = ()) -> None:
        if example.startswith(f"{self.place}:"):
            Check.add(self, right, example.removeprefix(f"{self.place}: "), difference)
            self.tokens = sorted({*self.tokens, *tokens})


def place_of(record: TrajectoryRecord) -> str:
    """Return the position of a trajectory in its run, as text."""
    return f"step {record.step}, {record.trajectory.group_id}, sample {record.trajectory.sample_index}"


def order_mismatch(expected: Sequence[str], found: Sequence[str], source: str) -> str:
    """Describe the first difference between the expected and the recorded ids of problems."""
    for index, (one, other) in enumerate(zip(expected, found, strict=False)):
        if one != other:
            return f"expected the problem {one!r} of {source} at {index}, found {other!r}"
    return f"expected {len(expected)} problems of {source}, found {len(found)}"


def version_mismatch(record: TrajectoryRecord, max_staleness: int) -> str | None:
    """Return a message if policy versions sampled the trajectory that its step does not allow.

    The policy that learns from a step has the step's number as its version. Tokens may have been sampled by this
    version or by the `max_staleness` versions before it.
    """
    trajectory, oldest = record.trajectory, max(0, record.step - max_staleness)
    versions = {int(version) for version in trajectory.policy_versions_T[trajectory.loss_mask_T]}
    wrong = sorted(version for version in versions if not oldest <= version <= record.step)
    return f"sampled by policy versions {wrong}, expected {oldest} to {record.step}" if wrong else None


def group_members(records: Sequence[TrajectoryRecord]) -> dict[str, list[TrajectoryRecord]]:
    """Return the records of each group, by its name, in the order of the file."""
    groups: defaultdict[str, list[TrajectoryRecord]] = defaultdict(list)
    for record in records:
        groups[record.trajectory.group_id].append(record)
    return dict(groups)


def find_problems(records: Sequence[TrajectoryRecord], source: ProblemsById) -> dict[str, Problem]:
    """Return the problems of records, by id, as their source has them. Other problems and missing ones are left out."""
    return source.find(record.trajectory.prompt.problem for record in records)


class _UntrustedReward(Reward):
    """The reward of files that are not trusted. It grades nothing."""

    def __init__(self, error: NotTrustedError) -> None:
        self._error = error

    async def grade(self, group: Group) -> list[Grade]:
        raise self._error


@asynccontextmanager
async def started_reward(choice: Choice[Reward], config: LearningConfig, directory: Path) -> AsyncIterator[Reward]:
    """Start the reward of a run. One that needs trust, which the run does not have, refuses to grade."""
    try:
        reward = make_reward(choice)
    except NotTrustedError as error:
        reward = _UntrustedReward(error)
    try:
        await reward.start(RunContext(seed=config.run.seed, directory=directory))
        yield reward
    finally:
        await reward.close()


async def check_rewards(
    check: Check,
    records: Sequence[TrajectoryRecord],
    reward: Reward,
    max_response_tokens: int,
    problems: Mapping[str, Problem],
) -> None:
    """Grade a step's trajectories, with complete groups, again and compare.

    Grades with a grader failure are skipped, and grades from metadata of problems that are not known.

    Raises:
        RewardError: The reward failed.
    """
    groups = list(group_members(records).values())
    played = [tuple(record.trajectory for record in members) for members in groups]
    ungraded = (Group(each[0].prompt, each, max_response_tokens) for each in played)
    try:
        graded = await asyncio.gather(*(grade_again(reward, each, problems) for each in ungraded))
    except NotTrustedError as error:
        check.add_note(str(error))
        return
    for members, group in zip(groups, graded, strict=True):
        if group is None:
            check.add_note("the reward reads metadata of problems that cannot be found: their grades are not compared")
            continue
        for record, regraded in zip(members, (member.grade for member in group.members), strict=True):
            if record.grade.failure is None and regraded.failure is None:
                mismatch = grade_mismatch(record.grade, regraded)
                gap = abs(regraded.total - record.grade.total)
                check.add(mismatch is None, f"{place_of(record)}: {mismatch}", gap)


def grade_mismatch(recorded: Grade, regraded: Grade) -> str | None:
    """Return the first difference between two grades, or None."""
    if (recorded.correct, recorded.answer) != (regraded.correct, regraded.answer):
        return (
            f"answer {recorded.answer!r} is correct: {recorded.correct}, again {regraded.answer!r}: {regraded.correct}"
        )
    if recorded.valid_format != regraded.valid_format:
        return f"valid format: {recorded.valid_format}, again {regraded.valid_format}"
    if not _close(recorded.reward, regraded.reward):
        return f"reward {recorded.reward}, again {regraded.reward}"
    names = recorded.parts.keys()
    if names != regraded.parts.keys() or not all(_close(recorded.parts[name], regraded.parts[name]) for name in names):
        return f"parts {dict(recorded.parts)}, again {dict(regraded.parts)}"
    turns = recorded.turn_rewards, regraded.turn_rewards
    if len(turns[0]) != len(turns[1]) or not all(map(_close, *turns)):
        return f"turn rewards {turns[0]}, again {turns[1]}"
    return None


def _close(recorded: float, regraded: float) -> bool:
    return abs(recorded - regraded) <= _TOLERANCE
