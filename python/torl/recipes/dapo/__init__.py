"""DAPO: its prompt template, its answer line and its penalty for overlong responses. All else is settings of torl."""

import re
from typing import Any

from torl import Grade, Group, PositiveInt, Problem, Reward, Section

# The prompts of DAPO-Math-17k.
TEMPLATE = (
    "Solve the following math problem step by step. The last line of your response should be of the form Answer: "
    "$Answer (without quotes) where $Answer is the answer to the problem.\n\n{problem}\n\n"
    'Remember to put your answer on its own line after "Answer:".'
)
MAX_CHARACTERS = 300
"""Characters at the end of a response in which the answer must be."""

_ANSWER = re.compile(r"Answer\s*:\s*([^\n]+)", re.IGNORECASE)


def template(problem: Problem) -> str:
    """Return DAPO's prompt, which asks for the answer on a line after "Answer:"."""
    return TEMPLATE.replace("{problem}", problem.question, 1)


def find_answer_line(text: str) -> str | None:
    """Return the text after the last "Answer:" of the last 300 characters (verl's `math_dapo.py`), or None."""
    found = _ANSWER.findall(text[-MAX_CHARACTERS:])
    return found[-1].strip() if found else None


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
