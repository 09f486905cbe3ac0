"""The calls of a turn, made where their tools are: in the run, or in the environment."""

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from torl.environments import Reply
from torl.rollout.calls import EpisodeTools, TimedOutcome
from torl.rollout.environment import EpisodeEnvironment, TimedReply
from torl.types import ToolRequest, Turn


@dataclass(frozen=True, slots=True)
class CallRouter:
    """Answers the calls of one episode."""

    tools: EpisodeTools
    environment: EpisodeEnvironment | None

    async def answer(self, turn: Turn, requests: Sequence[ToolRequest]) -> tuple[list[TimedOutcome], Reply]:
        """The outcomes of the requests of a turn, in their order, and what the environment says to those of its tools.

        The environment is shown all of its calls at once, beside the calls of all other tools.

        Raises:
            ToolUnavailableError: a tool or the environment gave no outcome.
            TorlError: the host is broken.
        """
        environment = self.environment
        own = [] if environment is None else [each for each in requests if each.tool in environment.tools]
        if environment is None or not own:
            return await self.tools.call(requests), Reply()
        others = [each for each in requests if each.tool not in environment.tools]
        made, answered = await _side_by_side(self.tools.call(others), environment.answer(turn, own))
        of_tools = iter(made)
        of_environment = iter(TimedOutcome(outcome, answered.time) for outcome in answered.reply.outcomes)
        outcomes = [next(of_environment if each.tool in environment.tools else of_tools) for each in requests]
        return outcomes, answered.reply


async def _side_by_side(
    calls: Coroutine[Any, Any, list[TimedOutcome]], answer: Coroutine[Any, Any, TimedReply]
) -> tuple[list[TimedOutcome], TimedReply]:
    """Both at once; what fails in one ends the other."""
    tasks = asyncio.ensure_future(calls), asyncio.ensure_future(answer)
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
