"""ToRL: its prompt template, its format, and the code penalty that it tried."""

from collections.abc import Sequence
from typing import ClassVar

from torl import (
    ErrorStyle,
    FencedFormat,
    FenceStyle,
    Outcome,
    PositiveInt,
    Problem,
    Section,
    Trajectory,
    Turn,
    render_outcome,
)

# Section 2: the same text for every model, so that a base model needs no chat format. "Above" is the paper's.
TEMPLATE = (
    "A conversation between User and Assistant. The user asks a question, and the Assistant solves it.\n"
    "User: Please integrate natural language reasoning with programs to solve the problem above, "
    "and put your final answer within \\boxed{}.\n"
    "{problem}\n"
    "Assistant:\n"
)


def template(problem: Problem) -> str:
    """Return ToRL's prompt."""
    return TEMPLATE.replace("{problem}", problem.question, 1)


def template_no_tool(problem: Problem) -> str:
    """Return ToRL's prompt without the words on programs, for runs without a tool. The paper does not print it."""
    without = TEMPLATE.replace(
        "integrate natural language reasoning with programs to solve", "reason step by step to solve"
    )
    return without.replace("{problem}", problem.question, 1)


class ToRLOptions(Section):
    """Options of the format "torl"."""

    error_style: ErrorStyle = "last_line"
    fences: FenceStyle = "lines"
    """Fences that open a block: alone on a line ("lines"), or as in ToRL's code ("published") also at the end of a
    line, or with more text after the language."""
    max_observation_characters: PositiveInt = 256
    """Limit on the characters of an observation: a longer one keeps its head and tail, half of this each."""


class ToRLFormat(FencedFormat):
    r"""ToRL's format (section 3.1): the last block runs at "```output", and "\n{observation}\n```\n" follows."""

    name: ClassVar[str] = "torl"

    def __init__(self, options: ToRLOptions | None = None) -> None:
        self.options = options or ToRLOptions()
        self.fences = self.options.fences

    def render_observation(self, turn: Turn, outcomes: Sequence[Outcome]) -> str:
        text = render_outcome(outcomes[0], self.options.error_style, self.options.max_observation_characters)
        return f"\n{text}\n```\n"


def failed_code(trajectory: Trajectory) -> float:
    """Return 1 if some code of the response ran and failed (section 3.3, with a weight of -0.5)."""
    return float(any(call.ran and not call.outcome.ok for call in trajectory.tool_calls))
