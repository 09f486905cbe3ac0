"""Grading: whether the answer of a model equals a reference. Rewards, commands and the laboratory call it."""

from torl.components.grading.grader import Grader as Grader
from torl.components.grading.verdict import Verdict as Verdict
