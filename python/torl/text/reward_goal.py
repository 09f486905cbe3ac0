"""Prompts that say which reward is wanted, so that a group holds good and bad responses (RC-GRPO)."""

from torl.options import PositiveFraction, Section


class RewardGoal(Section):
    """What prompts say of the reward that is wanted (RC-GRPO). The model must know before what each text means."""

    high: str = "<|high_reward|>"
    """Stands on a line of its own before the question where a high reward is wanted, and in evaluations."""
    low: str = "<|low_reward|>"
    """Stands there where a low one is wanted."""
    high_fraction: PositiveFraction | None = None
    """Share of the episodes of training that a high reward is wanted of, drawn for each by itself; prompts say nothing
    of it when unset."""
