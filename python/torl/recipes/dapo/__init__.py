"""DAPO: its penalty for overlong responses. The loss, the clip ranges and dynamic sampling are settings of torl."""

from typing import Any

from torl import Grade, Group, PositiveInt, Reward, Section


class OverlongOptions(Section):
    """Options of the reward "overlong"."""

    buffer: PositiveInt
    """Tokens before `rollout.max_response_tokens` over which the penalty grows to -1."""

    def check_within(self, config: Any) -> None:
        limit = config.rollout.max_response_tokens
        if self.buffer >= limit:
            raise ValueError(f"buffer = {self.buffer} must be below rollout.max_response_tokens ({limit})")


class Overlong(Reward):
    """DAPO's soft overlong punishment (equation 13), between -1 and 0."""

    def __init__(self, options: OverlongOptions) -> None:
        self.options = options

    async def grade(self, group: Group) -> list[Grade]:
        limit, buffer = group.max_response_tokens, self.options.buffer
        return [Grade(overlong_penalty(len(trajectory), limit, buffer)) for trajectory in group.trajectories]


def overlong_penalty(tokens: int, limit: int, buffer: int) -> float:
    """Return 0 up to `limit - buffer` tokens, then linearly down to -1 at the limit, which no response exceeds."""
    return -min(max((tokens - (limit - buffer)) / buffer, 0.0), 1.0)
