"""A tiny model that calls Python by <tool_call>, now and then, and guesses otherwise, for `make demo-chat`.

It has learned by heart to write the conversations of `conversation`: a message with a call, or with two, or with one
that is not JSON, or a guess. Reinforcement learning has to find out which of these is rewarded.
"""

import json
import random

DIVISOR = 7
_SHARES = {"guess": 0.55, "call": 0.25, "two calls": 0.1, "malformed": 0.1}


def question(number: int) -> str:
    """Numbers have three digits, so that a model of this size can learn to copy them."""
    return f"Find {number} % {DIVISOR}."


def problems(count: int, seed: int) -> list[dict[str, str]]:
    """Rows of a file of problems."""
    numbers = random.Random(seed).sample(range(100, 1000), count)
    return [{"id": str(n), "problem": question(n), "answer": str(n % DIVISOR)} for n in numbers]


def conversation(generator: random.Random, tool: str = "python") -> str:
    """A whole response with its prompt, as the model's template and the format "hermes" put them together."""
    number = generator.randrange(100, 1000)
    request = prompt(question(number), tool)
    kind = generator.choices(list(_SHARES), list(_SHARES.values()))[0]
    guess = generator.randrange(DIVISOR)
    if kind == "guess":
        return request + message(answer(guess))
    made, printed = call(tool, code=f"print({number} % {DIVISOR})"), str(number % DIVISOR)
    if kind == "call":
        return request + message(made) + results(printed) + message(answer(printed))
    if kind == "two calls":
        both = f"{made}\n{call(tool, code=f'print({number})')}"
        return request + message(both) + results(printed, str(number)) + message(answer(printed))
    broken = made.replace("}}", "}")
    return request + message(broken) + results("InvalidJSON") + message(answer(guess))


def prompt(question: str, *tools: str) -> str:
    """The messages before the model's first, as `TEMPLATE` writes them."""
    names = "".join(f"{tool}\n" for tool in tools)
    return f"<|im_start|>system\n{names}<|im_end|>\n<|im_start|>user\n{question}<|im_end|>\n"


def message(text: str) -> str:
    """A message of the model."""
    return f"<|im_start|>assistant\n{text}<|im_end|>"


def call(tool: str, **arguments: str) -> str:
    """A call as the format "hermes" writes it."""
    return f"<tool_call>\n{json.dumps({'name': tool, 'arguments': arguments})}\n</tool_call>"


def results(*contents: str) -> str:
    """The message that answers its calls."""
    responses = [f"\n<tool_response>\n{content}\n</tool_response>" for content in contents]
    return f"\n<|im_start|>user{''.join(responses)}<|im_end|>\n"


def answer(value: object) -> str:
    """The last message of the model."""
    return f"It is \\boxed{{{value}}}."
