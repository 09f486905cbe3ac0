"""The base class of agents, which play episodes instead of torl's own loop."""

from abc import abstractmethod
from typing import Any, Literal

from torl.component import Component
from torl.options import PositiveFloat, PositiveInt, Section
from torl.types import Problem


class AgentLimits(Section):
    """Options of every agent program."""

    timeout_seconds: PositiveFloat = 600.0
    """Seconds that a program may take, less those in which it waits for the model."""
    max_concurrent: PositiveInt = 256
    """Programs that run at once; further episodes wait."""
    max_turns: PositiveInt = 256
    """Turns that a program may ask for in an episode; a further request is refused."""
    on_failure: Literal["spoil", "no_answer"] = "spoil"
    """What a program's crash or time-out makes of its episode: it is left out of its group and counted, or it is graded
    as one that gave no answer. The latter where the model's own words may bring the program down."""


def limits_of(_: Any) -> type[AgentLimits]:
    """The limits that an agent's section may set."""
    return AgentLimits


class Agent(Component):
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

    @abstractmethod
    async def run(self, problem: Problem, url: str) -> str | None:
        """Play one episode and return its answer; None selects the last message of the model.

        Cancellation must stop everything that the call has started. An exception fails the episode.

        Args:
            problem: Problem to solve.
            url: Base URL of the API for this episode, the parent of "/chat/completions". The URL is secret, and any API
                key is accepted.
        """
