"""Rewards: from a group of trajectories to its grades. Answers are compared by `torl.components.grading`."""

from torl.components.rewards.judge import JudgeClient as JudgeClient
from torl.components.rewards.math import MathOptions as MathOptions
from torl.components.rewards.math import MathReward as MathReward
from torl.components.rewards.reward import Reward as Reward
from torl.components.rewards.rubric import REWARD_VALUE as REWARD_VALUE
from torl.components.rewards.rubric import REWARDS as REWARDS
from torl.components.rewards.rubric import Rubric as Rubric
from torl.components.rewards.rubric import RubricOptions as RubricOptions
from torl.components.rewards.rubric import check_value as check_value
from torl.components.rewards.rubric import count_positional as count_positional
from torl.components.rewards.rubric import make_reward as make_reward
