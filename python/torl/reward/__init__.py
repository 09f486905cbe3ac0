"""From a group of trajectories to its grades."""

from collections.abc import Callable
from types import MappingProxyType
from typing import Any

from torl.reward.artist import ArtistReward
from torl.reward.base import Reward
from torl.reward.boxed import BoxedOptions, BoxedReward
from torl.reward.environment import EnvironmentRewardOptions, EnvironmentReward
from torl.reward.exact_match import ExactMatchOptions, ExactMatchReward
from torl.reward.expected_calls import ExpectedCallsOptions, ExpectedCallsReward
from torl.reward.grader import Grader
from torl.reward.judging.reward import JudgedReward
from torl.reward.judging.scored_turns import ScoredTurnsReward
from torl.reward.verdict import Verdict

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
    "EnvironmentRewardOptions",
    "EnvironmentReward",
    "ExactMatchOptions",
    "ExactMatchReward",
    "ExpectedCallsOptions",
    "ExpectedCallsReward",
    "Grader",
    "Reward",
    "Verdict",
]
