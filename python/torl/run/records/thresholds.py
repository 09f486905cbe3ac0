"""The thresholds and the advice that several judges of a run share: `torl try`, a run's outcome and `torl doctor`.

Each adds further conditions: the doctor waits until the reward stops rising, and allows for chance.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Limit:
    """A threshold.

    Attributes:
        value: Threshold.
        text: Condition in words, with the value.
        source: Origin of the value.
    """

    value: float
    text: str
    source: str


COMPARED_STEPS: Final = 5
"""Number of first steps and of latest steps whose means are compared."""
FEW_MIXED: Final = Limit(0.1, "below 0.1 of the groups have different rewards", "prime-rl stops a curriculum there")
EQUAL_REWARDS: Final = Limit(
    0.5, "above 0.5 over the last 5 steps, by 3 standard deviations, while the reward does not rise", "miles' dashboard"
)
"""Limit on the fraction of groups with equal rewards in a run. `FEW_MIXED` is for one step of an untrained model."""
UNRELATED: Final = Limit(0.1, "correlation with correctness within groups below 0.1", "torl")
TRUNCATED: Final = Limit(0.25, "above 0.25 while the reward does not rise, or above 0.5", "miles, rlprobe")
LONGER_RESPONSES: Final = "raise rollout.max_response_tokens"
"""Advice for truncated responses."""
COLLAPSED_ENTROPY: Final = Limit(
    0.1,
    "below a tenth of the first steps', or below 0.25 nats from above 1, while the reward does not rise",
    "rldoctor, rlprobe",
)
MORE_ENTROPY: Final = "algorithm.policy_loss.clip_high, algorithm.entropy_bonus, a lower learner.learning_rate"
"""Advice for an entropy that collapsed: settings to change."""
