"""The results of an audit's checks, and the checks of policy versions and rewards."""

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from torl.base.errors import NotTrustedError, TorlError
from torl.base.options import Choice
from torl.base.types import Grade, Group, Problem
from torl.components.rewards import Reward, make_reward
from torl.rollout.grading import ProblemsById, grade_again
from torl.run.records.rows import TrajectoryRecord

_MAX_SHOWN = 3
_TOLERANCE = 1e-6
MAX_LOGPROB: Final = 2e-5
"""The largest log-probability that rounding in float32 makes of 0."""
COLUMNS = f"{'check':<12} {'verdict':<12} {'expected':>8} {'found':>8}  max difference"
"""The head of the table whose rows are checks."""


@dataclass(slots=True)
class Check:
    """The result of one check: numbers of comparisons and mismatches, differences and examples."""

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
            if len(self.examples) < _MAX_SHOWN:
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
        except (ArithmeticError, AssertionError, LookupError, RuntimeError, TypeError, ValueError) as error:
            self.add(False, f"{place}: cannot be compared: {type(error).__name__}: {error}")
        except (OSError, TorlError) as error:
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


def reward_of(choice: Choice[Reward]) -> Reward:
    """Make the reward of a run. One that needs trust, which the run does not have, is made, but refuses to grade."""
    try:
        return make_reward(choice)
    except NotTrustedError as error:
        return _UntrustedReward(error)


async def check_rewards(
    check: Check,
    records: Sequence[TrajectoryRecord],
    reward: Reward,
    max_response_tokens: int,
    problems: Mapping[str, Problem],
) -> None:
    """Grade a step's trajectories again and compare.

    Grades with a grader failure are skipped, and grades from metadata of problems that are not known.

    Args:
        check: Result that the comparisons are counted in.
        records: Records of a step, with complete groups.
        reward: Reward of the run, started.
        max_response_tokens: Token limit of the run's responses.
        problems: Problems with their metadata by id (`ProblemsById.find`).

    Raises:
        RewardError: The reward failed.
    """
    groups = group_members(records)
    gradings = (grade_again(reward, _group(each, max_response_tokens), problems) for each in groups.values())
    try:
        graded = await asyncio.gather(*gradings)
    except NotTrustedError as error:
        check.add_note(str(error))
        return
    for members, group in zip(groups.values(), graded, strict=True):
        if group is None:
            check.add_note("the reward reads metadata of problems that cannot be found: their grades are not compared")
            continue
        for record, member in zip(members, group.members, strict=True):
            regraded = member.grade
            if record.grade.failure is None and regraded.failure is None:
                mismatch = grade_mismatch(record.grade, regraded)
                gap = abs(regraded.total - record.grade.total)
                check.add(mismatch is None, f"{place_of(record)}: {mismatch}", gap)


def _group(records: Sequence[TrajectoryRecord], max_response_tokens: int) -> Group:
    trajectories = tuple(record.trajectory for record in records)
    return Group(trajectories[0].prompt, trajectories, max_response_tokens)


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
    if not _equal_parts(recorded.parts, regraded.parts):
        return f"parts {dict(recorded.parts)}, again {dict(regraded.parts)}"
    if len(recorded.turn_rewards) != len(regraded.turn_rewards) or not all(
        map(_close, recorded.turn_rewards, regraded.turn_rewards)
    ):
        return f"turn rewards {recorded.turn_rewards}, again {regraded.turn_rewards}"
    return None


def _equal_parts(recorded: Mapping[str, float], regraded: Mapping[str, float]) -> bool:
    return recorded.keys() == regraded.keys() and all(_close(recorded[name], regraded[name]) for name in recorded)


def _close(recorded: float, regraded: float) -> bool:
    return abs(recorded - regraded) <= _TOLERANCE
