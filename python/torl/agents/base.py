"""What plays an episode in the place of torl's own loop."""

from typing import Any, Literal, Protocol

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


class Agent(Protocol):
    """Plays episodes by asking the model at an address of OpenAI's chat completions; one object serves all episodes.

    A whole one, which asks once:

        import json
        from asyncio import to_thread
        from urllib.request import Request, urlopen

        import torl

        class AskOnce(torl.Agent):
            def __init__(self, hint: str = "") -> None:
                self.hint = hint

            async def run(self, problem: torl.Problem, url: str) -> str | None:
                asked = {"messages": [{"role": "user", "content": problem.question + self.hint}]}
                request = Request(f"{url}/chat/completions", json.dumps(asked).encode())
                with await to_thread(urlopen, request) as answer:
                    return json.load(answer)["choices"][0]["message"]["content"]

        [rollout.agent]
        name = "my_agents:AskOnce"
        hint = "Think."

    The parameters of its `__init__`, if it has any, are its options, beside those of `AgentLimits`.
    """

    async def run(self, problem: Problem, url: str) -> str | None:
        """Play one episode and return its answer; None for what the model said last.

        Cancelling the call ends whatever it has started. What it raises spoils the episode.

        Args:
            problem: to solve.
            url: of the interface, for this episode alone; "/chat/completions" is below it. Nobody guesses it, and any
                key will do.
        """
        ...
