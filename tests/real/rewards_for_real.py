"""A reward whose values differ within every group, regardless of the model."""

from torl import Trajectory


def parity(trajectory: Trajectory) -> float:
    return float(len(trajectory) % 2)
