"""Rewards by grading again, with the run's own reward."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from torl.apps.audit.check import Check, place_of
from torl.records.rows import TrajectoryRecord
from torl.rewards import Reward
from torl.rollout.grading import score_groups
from torl.types import Grade, Group

_TOLERANCE = 1e-6


async def check_rewards(
    check: Check, records: Sequence[TrajectoryRecord], reward: Reward, max_response_tokens: int
) -> None:
    """Compare every recorded grade with a new one; one that could not be decided, then or now, says nothing.

    Args:
        check: to count in.
        records: of a step, whole groups.
        reward: started.
        max_response_tokens: the run's limit.

    Raises:
        RewardError: the reward is broken.
    """
    groups: defaultdict[str, list[TrajectoryRecord]] = defaultdict(list)
    for record in records:
        groups[record.trajectory.group_id].append(record)

    graded = await score_groups(reward, [_group(members, max_response_tokens) for members in groups.values()])
    for members, group in zip(groups.values(), graded, strict=True):
        for record, member in zip(members, group.members, strict=True):
            again = member.grade
            if record.grade.failure is None and again.failure is None:
                problem = grade_mismatch(record.grade, again)
                gap = abs(again.total - record.grade.total)
                check.add(problem is None, f"{place_of(record)}: {problem}", gap)


def _group(records: Sequence[TrajectoryRecord], max_response_tokens: int) -> Group:
    trajectories = tuple(record.trajectory for record in records)
    return Group(trajectories[0].prompt, trajectories, max_response_tokens)


def grade_mismatch(recorded: Grade, again: Grade) -> str | None:
    """What differs between the two; None if nothing does."""
    if (recorded.correct, recorded.answer) != (again.correct, again.answer):
        return f"answer {recorded.answer!r} is correct: {recorded.correct}, again {again.answer!r}: {again.correct}"
    if recorded.valid_format != again.valid_format:
        return f"valid format: {recorded.valid_format}, again {again.valid_format}"
    if not _close(recorded.reward, again.reward):
        return f"reward {recorded.reward}, again {again.reward}"
    if not _equal_parts(recorded.parts, again.parts):
        return f"parts {dict(recorded.parts)}, again {dict(again.parts)}"
    if len(recorded.turn_rewards) != len(again.turn_rewards) or not all(
        map(_close, recorded.turn_rewards, again.turn_rewards)
    ):
        return f"turn rewards {recorded.turn_rewards}, again {again.turn_rewards}"
    return None


def _equal_parts(recorded: Mapping[str, float], again: Mapping[str, float]) -> bool:
    return recorded.keys() == again.keys() and all(_close(recorded[name], again[name]) for name in recorded)


def _close(recorded: float, again: float) -> bool:
    return abs(recorded - again) <= _TOLERANCE
