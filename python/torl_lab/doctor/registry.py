"""All diseases, registered by the modules of their subjects, and the functions that find them."""

from torl_lab.doctor import engine, grading, groups, operations, optimizer, policy, rewards, tools, workers
from torl_lab.doctor.diagnosis import DISEASES, Diagnosis, Disease, Examination, examine
from torl_lab.doctor.history import History, read_history

SUBJECTS = (groups, rewards, grading, tools, policy, engine, optimizer, operations, workers)
"""Modules whose import registers diseases."""

__all__ = ["DISEASES", "SUBJECTS", "Diagnosis", "Disease", "Examination", "History", "examine", "read_history"]
