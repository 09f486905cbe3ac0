"""ASTER: a cold start on responses with many calls, then reinforcement learning with budgets that grow."""

from torl import PositiveInt, ScoredTrajectory


def few_calls(member: ScoredTrajectory, at_least: PositiveInt = 10) -> bool:
    """Mask responses with fewer calls than ASTER fine-tunes on.

    Args:
        member: Response.
        at_least: Minimum number of calls of a response that is kept.
    """
    return len(member.trajectory.tool_calls) < at_least
