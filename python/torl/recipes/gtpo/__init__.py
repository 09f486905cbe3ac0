"""GTPO: its turn rewards for malformed calls. The advantage estimators "gtpo" and "gtpo_similar_code" are torl's."""

from torl import Grade, Trajectory


def malformed_turn(trajectory: Trajectory) -> Grade:
    """Reward each turn with 1 that has a malformed call, and a first turn without a call (with a weight of -0.1)."""
    return Grade(0.0, turn_rewards=tuple(map(float, malformed_turns(trajectory))))


def malformed_turns(trajectory: Trajectory) -> list[bool]:
    """Return for each turn whether it has a call that cannot be made, or is the first and has no call."""
    calls = [trajectory.calls_in(turn) for turn in trajectory.turns]
    return [not (made or number) or not all(call.ran for call in made) for number, made in enumerate(calls)]
