"""Recorded responses, and the facts of them that several formulas use."""

from collections.abc import Iterable, Sequence

from torl.base.types import Grade, ScoredGroup, ToolCall, Trajectory, Turn

Response = tuple[Trajectory, Grade]
"""A response with the grade of its episode."""


def responses_of(groups: Iterable[ScoredGroup]) -> list[Response]:
    """Return all responses of groups. Each branch of an episode is one."""
    members = (member for group in groups for member in group.members)
    return [(each, member.grade) for member in members for each in (*member.trajectory.branches, member.trajectory)]


def share(name: str, part: float, whole: float) -> dict[str, float]:
    """Return a ratio by its name; nothing if the denominator is 0."""
    return {name: part / whole} if whole else {}


def total_reward(grade: Grade) -> float:
    """Return the reward at the end plus the rewards of the turns."""
    return grade.reward + sum(grade.turn_rewards)


def is_credited(grade: Grade) -> bool:
    """Whether the answer is correct in a valid format."""
    return grade.correct and grade.valid_format


def is_run(call: ToolCall) -> bool:
    """Whether a call was executed."""
    return call.request is not None


def code_of(call: ToolCall) -> str:
    """Return the code argument of a call; an empty text without one."""
    return "" if call.request is None else str(call.request.arguments.get("code", ""))


def calls_after(trajectory: Trajectory, turn: Turn) -> list[ToolCall]:
    """Return the calls whose observation begins where the turn ends."""
    return [call for call in trajectory.tool_calls if call.start == turn.stop]


def sampled_text(turns: Sequence[Turn]) -> str:
    """Return the text of turns, with a newline instead of each observation."""
    return "\n".join(turn.text for turn in turns)
