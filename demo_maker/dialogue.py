"""A tiny model in an environment: it is told a code if it asks, and is paid for saying it again.

It has learned by heart to ask now and then, and to guess otherwise; who has been told the code guesses as well, mostly.
Reinforcement learning has to find out that asking pays, and saying what was told.
"""

import random
from collections.abc import Mapping

from demo_maker.chat import answer, message, prompt
from torl.environments import Environment, EnvironmentSession, Message, Reply
from torl.types import Problem

QUESTION = "Find the code."
ASKS = "Tell me."
_ASKED, _SAID_AGAIN = 0.5, 0.3


def told(code: int) -> str:
    """What the environment answers to who asks."""
    return f"The code is {code}."


def problems(count: int, first: int = 0) -> list[dict[str, str]]:
    """Rows of a file of problems: each has a code of its own, which none of them says."""
    return [{"id": f"code-{number}", "problem": QUESTION, "answer": ""} for number in range(first, first + count)]


def conversation(generator: random.Random) -> str:
    """A whole response with its prompt, as the model's template and the format "hermes" put them together."""
    asked, code, guess = prompt(QUESTION), generator.randrange(10), generator.randrange(10)
    if generator.random() > _ASKED:
        return asked + message(answer(guess))
    said = code if generator.random() < _SAID_AGAIN else guess
    return asked + message(ASKS) + f"\n<|im_start|>user\n{told(code)}<|im_end|>\n" + message(answer(said))


class Code(Environment):
    """Tells the code of an episode, or a wrong one, and ends it with the first message that says one."""

    def __init__(self, honest: bool = True) -> None:
        """Where it is not `honest`, nothing can be learned from what it tells."""
        self._honest = honest

    def session(self, problem: Problem, seed: int) -> "CodeSession":
        """The code is that of the seed: the same for all episodes that are compared."""
        generator = random.Random(seed)
        code = generator.randrange(10)
        return CodeSession(code, code if self._honest else random.randrange(10))


class CodeSession(EnvironmentSession):
    """One episode."""

    def __init__(self, code: int, told: int) -> None:
        """The code, and what is told."""
        self._code, self._told, self._right = code, told, False

    async def answer(self, message: Message) -> Reply:
        """The code, to who asks for it."""
        if message.content == ASKS:
            return Reply(said=[told(self._told)])
        self._right = message.content == answer(self._code)
        return Reply(ended=True)

    async def rewards(self, unanswered: Message | None) -> Mapping[str, float]:
        """Whether it was said."""
        return {"right": float(self._right)}
