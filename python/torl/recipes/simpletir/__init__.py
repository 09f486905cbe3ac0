"""SimpleTIR: its mask of trajectories with a void turn, and its filter of groups with many cut responses."""

from torl import FinishReason, PositiveInt, ScoredGroup, ScoredTrajectory, Trajectory, find_answer


def void_turn(member: ScoredTrajectory) -> bool:
    """Mask trajectories with a turn that has neither a complete code block nor a boxed answer."""
    return has_void_turn(member.trajectory)


def has_void_turn(trajectory: Trajectory) -> bool:
    """Whether a turn has neither a complete code block nor a boxed answer."""
    return any(not turn.blocks and find_answer(turn.text) is None for turn in trajectory.turns)


def few_complete(group: ScoredGroup, at_least: PositiveInt = 4) -> bool:
    """Drop groups in which few responses ended within the token limit (SimpleTIR's `remove_clip`).

    Void turns do not matter here: SimpleTIR masks their trajectories, and counts them as any other.

    Args:
        group: Group.
        at_least: Minimum number of responses that were not cut at the token limit.
    """
    complete = [member.trajectory.finish_reason is not FinishReason.LENGTH for member in group.members]
    return sum(complete) < at_least
