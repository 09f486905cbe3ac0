"""A tiny model in an environment: it is shown a color if it asks, and is rewarded for repeating it.

It has learned by heart to ask half of the time, and to guess otherwise; it may guess after seeing the color as well.
Reinforcement learning has to find out that asking is rewarded, and repeating the reply.
"""

import random
from collections.abc import Mapping

from demo_maker.chat import answer, message, prompt
from torl.base.types import Problem
from torl.components.environments import Environment, EnvironmentSession, Message, Reply

QUESTION = "Find the color."
ASKS = "Tell me."
COLORS = ("red", "blue", "green", "white", "black", "brown", "gray", "pink", "gold", "teal")
COPIED = r'The color is "(\w+)"\.[\s\S]*\\boxed\{(\1)\}'
"""Maps the reply to the model's next message."""
_ASKED, _SAID_AGAIN = 0.5, 0.9


def told(color: str) -> str:
    """The environment's reply to a question."""
    return f'The color is "{color}".'


def problems(count: int, first: int = 0) -> list[dict[str, str]]:
    """Rows of a file of problems, each with a different color, which the environment alone knows."""
    return [
        {"id": f"color-{number}", "problem": QUESTION, "answer": "what the environment says"}
        for number in range(first, first + count)
    ]


def conversation(generator: random.Random) -> str:
    """A whole response with its prompt, as the model's template and the format "hermes" put them together."""
    request, color, guess = prompt(QUESTION), generator.choice(COLORS), generator.choice(COLORS)
    if generator.random() > _ASKED:
        return request + message(answer(guess))
    text = color if generator.random() < _SAID_AGAIN else guess
    return request + message(ASKS) + f"\n<|im_start|>user\n{told(color)}<|im_end|>\n" + message(answer(text))


class Color(Environment):
    """Tells the color of an episode, or any other, and ends it with the first message that says one."""

    def __init__(self, honest: bool = True) -> None:
        """If it is not `honest`, nothing can be learned from its replies."""
        self._honest = honest

    def session(self, problem: Problem, seed: int) -> "ColorSession":
        """The color is that of the seed: the same for all episodes that are compared."""
        color = random.Random(seed).choice(COLORS)
        return ColorSession(color, color if self._honest else random.choice(COLORS))


class ColorSession(EnvironmentSession):
    """One episode."""

    def __init__(self, color: str, told: str) -> None:
        """The color of the problem, and the color in the reply."""
        self._color, self._told, self._right = color, told, False

    async def step(self, message: Message) -> Reply:
        """The color, to who asks for it."""
        if message.content == ASKS:
            return Reply(user_messages=[told(self._told)])
        self._right = message.content == answer(self._color)
        return Reply(done=True)

    async def rewards(self, last_message: Message | None) -> Mapping[str, float]:
        """Whether the model answered with the color."""
        return {"right": float(self._right)}
