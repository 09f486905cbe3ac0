"""From a group of trajectories to its grades."""

from collections.abc import Callable
from types import MappingProxyType
from typing import Any

from torl.rewards.artist import ArtistReward
from torl.rewards.base import Reward
from torl.rewards.boxed import BoxedOptions, BoxedReward
from torl.rewards.environment import EnvironmentReward, EnvironmentRewardOptions
from torl.rewards.exact_match import ExactMatchOptions, ExactMatchReward
from torl.rewards.expected_calls import ExpectedCallsOptions, ExpectedCallsReward
from torl.rewards.grader import Grader
from torl.rewards.judging.reward import JudgedReward
from torl.rewards.judging.scored_turns import ScoredTurnsReward
from torl.rewards.verdict import Verdict

REWARDS: MappingProxyType[str, Callable[..., Any]] = MappingProxyType(
    {
        "boxed": BoxedReward,
        "judged": JudgedReward,
        "scored_turns": ScoredTurnsReward,
        "exact_match": ExactMatchReward,
        "environment": EnvironmentReward,
        "expected_calls": ExpectedCallsReward,
        "artist": ArtistReward,
    }
)
"""By the names that a configuration calls them."""

__all__ = [
    "REWARDS",
    "BoxedOptions",
    "BoxedReward",
    "EnvironmentReward",
    "EnvironmentRewardOptions",
    "ExactMatchOptions",
    "ExactMatchReward",
    "ExpectedCallsOptions",
    "ExpectedCallsReward",
    "Grader",
    "Reward",
    "Verdict",
]
