"""Agents: programs that drive an episode through an OpenAI-compatible API, instead of torl's own loop."""

from abc import abstractmethod
from collections.abc import Callable
from types import MappingProxyType
from typing import Any, Literal

from torl.base.component import Component
from torl.base.guard import InvalidResultError, describe, guarded
from torl.base.options import PositiveFloat, PositiveInt, Section
from torl.base.types import Problem

AGENTS: MappingProxyType[str, Callable[..., Any] | str] = MappingProxyType(
    {
        "command": "torl.components.agents.programs:CommandAgent",
        "function": "torl.components.agents.programs:FunctionAgent",
    }
)
"""Agents by their names in a configuration."""
AGENT_SHORTHANDS = ("command", "function")
"""Names of `AGENTS` that an option of the same name selects: `command = "python agent.py"`."""


class AgentLimits(Section):
    """Options of every agent program."""

    timeout_seconds: PositiveFloat = 600.0
    """Timeout of a program, in seconds, excluding the time it waits for the model."""
    max_concurrent: PositiveInt = 256
    """Maximum number of concurrent programs; further episodes wait."""
    on_failure: Literal["drop", "grade_empty"] = "drop"
    """Handling of a program's crash or timeout: drop the episode from its group, or grade it with an empty answer. Use
    "grade_empty" if model output can crash the program."""


def limits_of(_: Any) -> type[AgentLimits]:
    """Return the limits that an agent's section may set."""
    return AgentLimits


def check_answer(answer: object, *_: object, **__: object) -> None:
    """Raise `InvalidResultError` if the result of `Agent.run` is not a text or None."""
    if not isinstance(answer, str | None):
        raise InvalidResultError(f"expected str or None, got {describe(answer)}")


class Agent(Component, kind="agent"):
    """A program that plays episodes by requesting the model through OpenAI's chat completions API. Example:

        import json
        from asyncio import to_thread
        from urllib.request import Request, urlopen

        import torl

        class AskOnce(torl.Agent):
            def __init__(self, hint: str = "") -> None:
                self.hint = hint

            async def run(self, problem: torl.Problem, url: str) -> str | None:
                body = {"messages": [{"role": "user", "content": problem.question + self.hint}]}
                request = Request(f"{url}/chat/completions", json.dumps(body).encode())
                with await to_thread(urlopen, request) as response:
                    return json.load(response)["choices"][0]["message"]["content"]

        [rollout.agent]
        name = "my_agents:AskOnce"
        hint = "Think."

    The parameters of `__init__` are the options, in addition to `AgentLimits`.
    """

    @guarded(check_answer, fails_episode=True)
    @abstractmethod
    async def run(self, problem: Problem, url: str) -> str | None:
        """Play one episode and return its answer; None selects the last message of the model.

        Cancellation must stop everything that the call has started. An exception fails the episode.

        Args:
            problem: Problem to solve.
            url: Base URL of the API for this episode, the parent of "/chat/completions". The URL is secret, and any API
                key is accepted.
        """
