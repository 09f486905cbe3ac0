"""Rewards: from a group of trajectories to its grades."""

from torl.rewards.base import Reward
from torl.rewards.environment import EnvironmentReward, EnvironmentRewardOptions
from torl.rewards.grader import Grader
from torl.rewards.judge import JudgeClient
from torl.rewards.math import MathOptions, MathReward
from torl.rewards.rubric import REWARD_VALUE, REWARDS, Rubric, RubricOptions, check_value, count_positional, make_reward
from torl.rewards.verdict import Verdict

__all__ = [
    "REWARDS",
    "REWARD_VALUE",
    "EnvironmentReward",
    "EnvironmentRewardOptions",
    "Grader",
    "JudgeClient",
    "MathOptions",
    "MathReward",
    "Reward",
    "Rubric",
    "RubricOptions",
    "Verdict",
    "check_value",
    "count_positional",
    "make_reward",
]
