"""Grading: whether the answer of a model equals a reference. Rewards, commands and the laboratory call it."""

from torl.components.grading.grader import Grader
from torl.components.grading.verdict import Verdict

__all__ = ["Grader", "Verdict"]
