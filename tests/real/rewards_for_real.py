"""A reward whose values differ within every group, whatever a model can do."""

from torl import Trajectory


def parity(trajectory: Trajectory) -> float:
    return float(len(trajectory) % 2)
