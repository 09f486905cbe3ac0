"""The limits of an environment, and what is counted of those who exceed them."""

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TypeVar

from torl.errors import ToolUnavailableError, TorlError
from torl.options import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, Section
from torl.runtime.processes.supervision import is_cancelled
from torl.tools.bounded import CUT

Result = TypeVar("Result")


class EnvironmentLimits(Section):
    """Options of every environment."""

    max_turns: PositiveInt | None = None
    """Messages that the model may write in an episode; as many as the response limit has room for when unset."""
    timeout_seconds: PositiveFloat = 60.0
    """Time that beginning an episode, one answer, or the rewards may take."""
    retries: NonNegativeInt = 3
    """How often the beginning of an episode is tried again, before it is given up and left out of its group. What comes
    later is never tried again: the environment may have acted."""
    initial_backoff_seconds: NonNegativeFloat = 0.5
    """Pause before the first retry, in seconds; each further one is twice as long, up to 30 s."""
    max_message_characters: PositiveInt = 20_000
    """What a message or a result has beyond this is cut off, and "..." put in its place."""
    max_concurrent: PositiveInt = 256
    """Episodes that the environment plays at once; others wait to begin."""


@dataclass(slots=True)
class _Counts:
    episodes: int = 0  # that have begun
    retried: int = 0  # beginnings
    failed: int = 0  # episodes that it spoilt
    cut: int = 0  # messages and results that were too long
    unclosed: int = 0  # sessions whose end failed


class LimitEnforcer:
    """Keeps what an environment does within its bounds."""

    def __init__(self, bounds: EnvironmentLimits) -> None:
        """Count from 0."""
        self.bounds = bounds
        self.counts = _Counts()

    async def within(self, doing: str, result: Awaitable[Result]) -> Result:
        """The result, within the time limit.

        Raises:
            ToolUnavailableError: there was none, for whatever reason; other `TorlError`s as they are.
        """
        limit = self.bounds.timeout_seconds
        try:
            async with asyncio.timeout(limit) as deadline:
                return await result
        except TorlError:
            raise
        except Exception as error:
            if deadline.expired():
                raise ToolUnavailableError(
                    f"the environment did not {doing} within {limit:g} s (rollout.environment.timeout_seconds)"
                ) from error
            raise failure(doing, error) from error
        except asyncio.CancelledError as error:
            if is_cancelled():
                raise
            raise failure(doing, error) from error

    def cut(self, text: str) -> str:
        """`text` within its limit."""
        limit = self.bounds.max_message_characters
        if len(text) <= limit:
            return text
        self.counts.cut += 1
        return text[:limit] + CUT

    def metrics(self) -> dict[str, float]:
        """Episodes begun, beginnings tried again, episodes spoilt, texts cut, sessions that did not close."""
        counts = self.counts
        begun = {"episodes": counts.episodes, "retried": counts.retried, "failed": counts.failed}
        return {**begun, "cut": counts.cut, "unclosed": counts.unclosed}


def failure(doing: str, error: BaseException) -> ToolUnavailableError:
    """What spoils an episode: the environment raised."""
    return ToolUnavailableError(f"the environment failed to {doing}: {type(error).__name__}: {error}")
