"""ToRA: its prompt template and its format."""

from collections.abc import Sequence
from typing import ClassVar

from torl import FencedFormat, Outcome, OutcomeStatus, Problem, Turn, render_outcome, truncate_middle

MAX_CHARACTERS = 400
NOTHING_PRINTED = "Done"
OUT_OF_TIME = "Timeout Error"


def template(problem: Problem) -> str:
    """Return ToRA's prompt (`construct_prompt` in its `utils.py`)."""
    return f"<|user|>\n{problem.question}\n<|assistant|>\n"


class ToRAFormat(FencedFormat):
    r"""ToRA's format (`inference.py` and `python_executor.py`): "\n```output\n{result}\n```\n", at most 400 characters.

    The result is the printed text without surrounding whitespace, "Done" if it is empty, and the last line of an error
    alone. ToRA's code samples nothing after its fourth result: `rollout.max_tool_calls = 3` corresponds to its 4.
    """

    name: ClassVar[str] = "tora"

    def render_observation(self, turn: Turn, outcomes: Sequence[Outcome]) -> str:
        outcome = outcomes[0]
        result = render_outcome(outcome, max_characters=None).strip()
        if outcome.ok and not outcome.text.strip():
            result = NOTHING_PRINTED
        elif outcome.status is OutcomeStatus.TIMEOUT:
            result = OUT_OF_TIME
        return f"\n{truncate_middle(result, MAX_CHARACTERS)}\n```\n"
