"""Rewards: from a group of trajectories to its grades. Answers are compared by `torl.components.grading`."""

from torl.components.rewards.environment import EnvironmentReward, EnvironmentRewardOptions
from torl.components.rewards.judge import JudgeClient
from torl.components.rewards.math import MathOptions, MathReward
from torl.components.rewards.reward import Reward
from torl.components.rewards.rubric import (
    REWARD_VALUE,
    REWARDS,
    Rubric,
    RubricOptions,
    check_value,
    count_positional,
    make_reward,
)

__all__ = [
    "REWARDS",
    "REWARD_VALUE",
    "EnvironmentReward",
    "EnvironmentRewardOptions",
    "JudgeClient",
    "MathOptions",
    "MathReward",
    "Reward",
    "Rubric",
    "RubricOptions",
    "check_value",
    "count_positional",
    "make_reward",
]
