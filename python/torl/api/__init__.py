"""torl from Python: the commands as functions, policies that keep their engine, and runs."""

from torl.api.calls import evaluate, finetune, sample, train
from torl.api.policy import Policy
from torl.api.results import FinishedRun, History, Run, SampledGroups

__all__ = [
    "FinishedRun",
    "History",
    "Policy",
    "Run",
    "SampledGroups",
    "evaluate",
    "finetune",
    "sample",
    "train",
]
