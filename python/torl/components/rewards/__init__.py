"""Rewards: from a group of trajectories to its grades."""

from torl.components.rewards.base import Reward
from torl.components.rewards.environment import EnvironmentReward, EnvironmentRewardOptions
from torl.components.rewards.grader import Grader
from torl.components.rewards.judge import JudgeClient
from torl.components.rewards.math import MathOptions, MathReward
from torl.components.rewards.rubric import (
    REWARD_VALUE,
    REWARDS,
    Rubric,
    RubricOptions,
    check_value,
    count_positional,
    make_reward,
)
from torl.components.rewards.verdict import Verdict

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
