"""A coroutine function of this process as an agent."""

import inspect

from torl.agents.base import Agent
from torl.errors import ConfigError
from torl.options import load_object
from torl.types import Problem


class FunctionAgent(Agent):
    """Calls `await function(problem, url)` in the event loop, which it must not hold up."""

    def __init__(self, function: str) -> None:
        """Import the function.

        Args:
            function: Where it is found, as package.module:play.

        Raises:
            ConfigError: it is not there, or no coroutine function.
        """
        try:
            self._function = load_object(function)
        except ValueError as error:
            raise ConfigError(f"the agent {function!r}: {error}") from error
        if not inspect.iscoroutinefunction(self._function):
            raise ConfigError(f"the agent {function!r}: write it as `async def`, or as a program of its own (command)")

    async def run(self, problem: Problem, url: str) -> str | None:
        """What the function returns."""
        answer = await self._function(problem, url)
        if answer is not None and not isinstance(answer, str):
            raise TypeError(f"it returned {type(answer).__name__}, and an answer is a text, or None for the last one")
        return answer
