"""SimpleTIR: its mask of trajectories with a void turn."""

from torl import ScoredTrajectory, Trajectory, find_answer


def void_turn(member: ScoredTrajectory) -> bool:
    """Mask trajectories with a turn that has neither a complete code block nor a boxed answer."""
    return has_void_turn(member.trajectory)


def has_void_turn(trajectory: Trajectory) -> bool:
    """Whether a turn has neither a complete code block nor a boxed answer."""
    return any(not turn.blocks and find_answer(turn.text) is None for turn in trajectory.turns)
