"""From a trajectory to its grade: find the final answer, compare it with the reference, give the reward."""

from torl.reward.answers import BoxedAnswer, find_answer
from torl.reward.grader import GraderPool, GraderStatistics, Verdict

__all__ = ["BoxedAnswer", "GraderPool", "GraderStatistics", "Verdict", "find_answer"]
